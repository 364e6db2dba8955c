//! Reads the token stream of a chat completion.

use bytes::{Buf, Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt;
use serde_json::Value;
use tower::BoxError;

/// The text of a streamed answer, piece by piece.
#[derive(Debug)]
pub(crate) struct Answer<B> {
    body: B,
    pending: BytesMut,
    is_done: bool,
}

impl<B> Answer<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    pub(crate) fn new(body: B) -> Self {
        Self { body, pending: BytesMut::new(), is_done: false }
    }

    /// The next piece of text, `None` after a complete answer, an error if the stream was cut.
    pub(crate) async fn next(&mut self) -> Result<Option<String>, BoxError> {
        loop {
            while let Some(line) = self.next_line() {
                match text_of(&line) {
                    Line::Text(text) => return Ok(Some(text)),
                    Line::Done => self.is_done = true,
                    Line::Other => {}
                }
            }
            // Read on after `[DONE]`: the connection can be used again, and the slot is free, only at the end of the body.
            match self.body.frame().await {
                Some(frame) => {
                    if let Ok(data) = frame.map_err(Into::into)?.into_data() {
                        self.pending.extend_from_slice(&data);
                    }
                }
                None if self.is_done => return Ok(None),
                None => return Err("the stream ended before [DONE]".into()),
            }
        }
    }

    /// The whole text.
    pub(crate) async fn text(mut self) -> Result<String, BoxError> {
        let mut whole = String::new();
        while let Some(text) = self.next().await? {
            whole.push_str(&text);
        }
        Ok(whole)
    }

    fn next_line(&mut self) -> Option<Bytes> {
        let end = self.pending.iter().position(|&byte| byte == b'\n')?;
        let line = self.pending.split_to(end).freeze();
        self.pending.advance(1);
        Some(line)
    }
}

enum Line {
    Text(String),
    Done,
    Other,
}

fn text_of(line: &[u8]) -> Line {
    let Some(data) = line.strip_prefix(b"data:") else { return Line::Other };
    let data = data.trim_ascii();
    if data == b"[DONE]" {
        return Line::Done;
    }
    let chunk: Value = serde_json::from_slice(data).unwrap_or_default();
    match chunk["choices"][0]["delta"]["content"].as_str() {
        Some(text) if !text.is_empty() => Line::Text(text.to_owned()),
        _ => Line::Other,
    }
}
