//! Ways into clients that are not plain tower services, each behind a feature of its own name.

#[cfg(feature = "async-openai")]
pub mod async_openai;
#[cfg(feature = "prometheus")]
pub mod prometheus;
#[cfg(any(feature = "reqwest-middleware", feature = "async-openai"))]
mod reqwest;
#[cfg(feature = "reqwest-middleware")]
pub mod reqwest_middleware;
