//! One file per family of attach points. The attach target stands in each
//! probe's attribute; the loader reads it from the object.

pub(crate) mod answer;
pub(crate) mod call;
pub(crate) mod conntrack;
pub(crate) mod deep;
pub(crate) mod drop;
pub(crate) mod log;
pub(crate) mod nat;
pub(crate) mod tc;
