//! Reads what an answer says about itself while its bytes pass: tokens, the last event, errors inside a 200.
//!
//! | file | what is in it |
//! |---|---|
//! | `tap` | [`UsageTap`]: chooses the reader, and what the caller gets to see |
//! | `events` | server-sent events |
//! | `values` | JSON values one after the other: a document, NDJSON, Gemini's array |
//! | `walk` | the resumable walk over JSON text that both use |
//! | `place` | where in the JSON providers put what is looked for |
//! | `story` | what a stream has told so far, and what it means |
//! | `codes` | error codes and event types |
//! | `counts` | the token counts |
//!
//! Pure: bytes in, facts out. No clock, no task, no HTTP. Nothing is kept of a stream but a position in its JSON, its last
//! short event, and the counts.

pub(crate) mod codes;
mod counts;
mod events;
mod place;
mod short;
mod story;
mod tap;
mod values;
mod walk;

#[cfg(test)]
mod tests;

pub use self::counts::{CachedInput, Usage};
pub use self::tap::{Reading, UsageTap};
