//! The laboratory, and the tests that need a real kernel.

pub mod lab;
