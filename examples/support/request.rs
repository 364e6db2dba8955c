//! The request that the examples send.

use bytes::Bytes;
use http::{Request, header};
use http_body_util::Full;
use serde_json::json;

/// Where chat calls go, below a base URL such as `http://127.0.0.1:8089/v1`.
pub(crate) fn completions_url(base: &str) -> String {
    format!("{}/chat/completions", base.trim_end_matches('/'))
}

/// A streaming chat call.
#[derive(Clone, Debug)]
pub(crate) struct ChatRequest<'a> {
    pub(crate) model: &'a str,
    pub(crate) prompt: &'a str,
    pub(crate) max_tokens: u32,
}

impl ChatRequest<'_> {
    pub(crate) fn to(&self, base: &str) -> Request<Full<Bytes>> {
        let messages = json!([{"role": "user", "content": self.prompt}]);
        let body = json!({"model": self.model, "messages": messages, "max_tokens": self.max_tokens, "stream": true})
            .to_string();
        Request::post(completions_url(base))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .expect("the base URL is valid")
    }
}
