//! Every byte is accounted for, once per observation point.
