//! Another model in a body that is in memory.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use http_body_util::Full;

use crate::http::{PeekBody, model_span};

/// A body that can be made anew with another model in it.
///
/// ```
/// use bytes::Bytes;
/// use tower_inflight::{PeekBody, Peeked, RewriteBody};
///
/// struct Json(Bytes);
///
/// impl PeekBody for Json {
///     fn peek(&self) -> Option<Peeked<'_>> {
///         Some(self.0.clone().into())
///     }
/// }
///
/// impl RewriteBody for Json {
///     fn from_bytes(bytes: Bytes) -> Self {
///         Self(bytes)
///     }
/// }
/// ```
pub trait RewriteBody: PeekBody {
    /// The body that consists of these bytes.
    fn from_bytes(bytes: Bytes) -> Self;
}

impl RewriteBody for Full<Bytes> {
    fn from_bytes(bytes: Bytes) -> Self {
        Self::new(bytes)
    }
}

impl RewriteBody for Bytes {
    fn from_bytes(bytes: Bytes) -> Self {
        bytes
    }
}

impl RewriteBody for String {
    /// What was text is text with another model in it.
    fn from_bytes(bytes: Bytes) -> Self {
        Self::from_utf8_lossy(&bytes).into_owned()
    }
}

/// The body with this model for its own. `None` if it has none that can be seen; then it stays as it is.
pub(super) fn with_model<Q: RewriteBody>(body: &Q, model: &str) -> Option<(Q, usize)> {
    let json = body.peek()?;
    let Range { start, end } = model_span(&json)?;
    let model = serde_json::to_string(model).ok()?;
    let mut rewritten = BytesMut::with_capacity(json.len() + model.len());
    for part in [&json[..start], model.as_bytes(), &json[end..]] {
        rewritten.extend_from_slice(part);
    }
    let length = rewritten.len();
    Some((Q::from_bytes(rewritten.freeze()), length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(body: &str, model: &str) -> Option<String> {
        with_model(&body.to_owned(), model).map(|(body, _)| body)
    }

    #[test]
    fn the_model_changes_and_nothing_else() {
        let body = "\u{feff}{ \"messages\":[{\"model\":\"no\"}], \"model\" : \"old\\n\" ,\"x\":1}";
        let expected = "\u{feff}{ \"messages\":[{\"model\":\"no\"}], \"model\" : \"new \\\"one\\\"\" ,\"x\":1}";
        assert_eq!(with(body, "new \"one\"").as_deref(), Some(expected));
    }

    #[test]
    fn a_body_without_a_model_stays() {
        for body in ["", "{}", "[1]", r#"{"model":7}"#, r#"{"model":"cut"#] {
            assert_eq!(with(body, "new"), None, "{body}");
        }
    }
}
