//! Real clients against real hyper servers on loopback.

#[cfg(any(feature = "async-openai", feature = "reqwest-middleware"))]
mod adaptive;
mod ends;
mod hyper;
mod keep_alive;
#[cfg(feature = "async-openai")]
mod openai;
#[cfg(feature = "async-openai")]
mod openai_quota;
#[cfg(feature = "async-openai")]
mod openai_retry;
#[cfg(feature = "async-openai")]
mod openai_support;
mod reply;
#[cfg(feature = "reqwest-middleware")]
mod reqwest_call;
#[cfg(feature = "reqwest-middleware")]
mod reqwest_response;
#[cfg(feature = "reqwest-middleware")]
mod reqwest_retry;
#[cfg(feature = "reqwest-middleware")]
mod reqwest_stream;
#[cfg(feature = "reqwest-middleware")]
mod reqwest_support;
#[cfg(feature = "reqwest-middleware")]
mod reqwest_upload;
mod server;
mod support;
