//! Tests of a store of several stores, over the engines themselves.

mod children;
mod conformance;
mod opening;
mod routing;
