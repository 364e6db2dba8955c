//! What the upstream gets through a reqwest-middleware chain: what the caller sent.

use std::io;

use bytes::Bytes;
use reqwest::Body;
use reqwest::multipart::{Form, Part};
use tower_inflight::{InflightLimitLayer, Kind};

use super::reply::Reply;
use super::reqwest_support::{chain, plain, retrying};
use super::server::{Seen, Server};
use super::support::{JSON, assert_idle, lane, limiter, outcomes};

const FILE: [u8; 7] = [0x00, 0xFF, 0x0D, 0x0A, 0x2D, 0x2D, 0x58];

fn streamed(pieces: impl IntoIterator<Item = Bytes, IntoIter: Send + 'static>) -> Body {
    Body::wrap_stream(futures_util::stream::iter(pieces.into_iter().map(Ok::<_, io::Error>)))
}

fn form(file: Part) -> Form {
    Form::new().part("file", file.file_name("a.wav")).text("model", "whisper-1")
}

fn form_bytes(boundary: &str) -> Vec<u8> {
    let mut bytes =
        format!("--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n")
            .into_bytes();
    bytes.extend(FILE);
    bytes.extend(
        format!(
            "\r\n--{boundary}\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nwhisper-1\r\n--{boundary}--\r\n"
        )
        .bytes(),
    );
    bytes
}

fn boundary(seen: &Seen) -> String {
    let content_type = seen.headers["content-type"].to_str().expect("text");
    content_type.split_once("boundary=").expect("a boundary").1.to_owned()
}

/// Cases 54 and 134: no `try_clone` in the way, no error, and the lane of the endpoint.
#[tokio::test]
async fn a_multipart_upload_arrives_byte_for_byte_in_the_lane_of_its_endpoint() {
    let whole = Part::bytes(&FILE[..]);
    let stream = Part::stream(streamed([Bytes::from_static(&FILE[..3]), Bytes::from_static(&FILE[3..])]));
    for (part, is_sized) in [(whole, true), (stream, false)] {
        let limiter = limiter(1);
        let server = Server::answering(Reply::whole(200, "{\"text\":\"hi\"}")).await;
        let layer = InflightLimitLayer::new(limiter.clone()).limit_kinds([Kind::Chat, Kind::Audio]);
        let client = chain(plain(), layer);
        let response = client.post(server.url("/v1/audio/transcriptions")).multipart(form(part)).send().await;
        assert_eq!(response.expect("an answer").text().await.expect("whole"), "{\"text\":\"hi\"}");
        let seen = &server.requests()[0];
        assert_eq!(seen.body, form_bytes(&boundary(seen)));
        assert_eq!(seen.headers.contains_key("content-length"), is_sized);
        assert_eq!(lane(&limiter).lane, format!("http://{}/v1|*|audio", server.addr()));
        assert_eq!(outcomes(&limiter), "success 1");
        assert_idle(&limiter);
    }
}

/// Case 54, buffered by the caller.
#[tokio::test]
async fn a_form_in_memory_is_not_searched_for_its_model() {
    let limiter = limiter(1);
    let server = Server::answering(Reply::ok()).await;
    let layer = InflightLimitLayer::new(limiter.clone()).limit_kinds([Kind::Audio]);
    let request = chain(plain(), layer)
        .post(server.url("/v1/audio/transcriptions"))
        .header("content-type", "multipart/form-data; boundary=XyZ")
        .body(form_bytes("XyZ"));
    request.send().await.expect("an answer");
    assert_eq!(server.requests()[0].body, form_bytes("XyZ"));
    assert_eq!(lane(&limiter).lane, format!("http://{}/v1|*|audio", server.addr()));
}

/// By default audio passes.
#[tokio::test]
async fn an_upload_that_is_not_limited_passes_without_a_lane() {
    let limiter = limiter(1);
    let server = Server::answering(Reply::ok()).await;
    let upload = chain(plain(), limiter.clone()).post(server.url("/v1/audio/transcriptions"));
    upload.multipart(form(Part::bytes(&FILE[..]))).send().await.expect("an answer");
    assert_eq!(server.counts().total, 1);
    assert!(limiter.snapshot().lanes.is_empty());
}

/// Case 66.
#[tokio::test]
async fn a_streamed_body_and_no_body_go_through() {
    let limiter = limiter(1);
    let server = Server::answering(Reply::ok()).await;
    let client = chain(plain(), limiter.clone());
    let body = streamed([Bytes::from("{\"model\":"), Bytes::from("\"acme/smart\"}")]);
    client.post(server.chat_url()).body(body).send().await.expect("an answer");
    client.get(server.url("/v1/models")).send().await.expect("an answer");
    let seen = server.requests();
    assert_eq!((&seen[0].body[..], &seen[1].body[..]), (JSON.as_bytes(), &b""[..]));
    assert_eq!(seen[0].headers["transfer-encoding"], "chunked");
    assert_eq!(lane(&limiter).lane, format!("http://{}/v1|*", server.addr()));
    assert_eq!(lane(&limiter).offered, 1);
    assert_idle(&limiter);
}

/// Case 66: a retry layer that cannot clone says so itself, and nothing of it reaches the limiter.
#[tokio::test]
async fn a_retry_layer_that_cannot_clone_a_stream_leaves_no_trace() {
    let limiter = limiter(1);
    let server = Server::answering(Reply::ok()).await;
    let upload = retrying(2, limiter.clone()).post(server.chat_url()).body(streamed([Bytes::from(JSON)])).send();
    let error = upload.await.expect_err("the retry layer refuses");
    assert!(error.to_string().contains("not cloneable"), "{error}");
    assert_eq!(server.counts().total, 0);
    assert!(limiter.snapshot().lanes.is_empty());
}

/// Case 43.
#[tokio::test]
async fn heads_and_bytes_arrive_as_they_would_without_the_limiter() {
    const ODD: &str = "{ \"messages\" : [ ],\n\t\"model\":\"acme/smart\" ,\"z\":1 , \"a\": \"\\u00e9\" }";
    let server = Server::answering(Reply::ok()).await;
    let url = server.url("/v1/chat/completions?b=2&a=%20");
    let through = chain(plain(), limiter(1)).post(&url).header("X-Mixed", "Case ; stays").body(ODD);
    through.send().await.expect("an answer");
    plain().post(&url).header("X-Mixed", "Case ; stays").body(ODD).send().await.expect("an answer");
    let seen = server.requests();
    assert_eq!(seen[0].headers, seen[1].headers);
    assert_eq!((&seen[0].uri, &seen[0].method), (&seen[1].uri, &seen[1].method));
    assert_eq!((&seen[0].body, &seen[1].body), (&Bytes::from(ODD), &Bytes::from(ODD)));
}
