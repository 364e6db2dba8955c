use std::sync::LazyLock;

use http::Request;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

const SCAN_LIMIT: usize = 64 << 20;

fn derive<'a>(
    method: &'a Method,
    uri: &'a Uri,
    headers: &'a HeaderMap,
    body: Option<&'a [u8]>,
    scan_limit: usize,
) -> RequestLane<'a> {
    static NONE: LazyLock<http::Extensions> = LazyLock::new(http::Extensions::new);
    let head = RequestHead { method, uri, headers, extensions: &NONE };
    let all = Kinds::of([Kind::Chat, Kind::Embedding, Kind::Image, Kind::Audio, Kind::Other]);
    RequestLane::derive(head, None, body, scan_limit, all).expect("all kinds are limited")
}

fn shown(request: &Request<impl AsRef<[u8]>>) -> String {
    let body = request.body().as_ref();
    let body = (!body.is_empty()).then_some(body);
    let lane = derive(request.method(), request.uri(), request.headers(), body, SCAN_LIMIT);
    lane.as_ref().to_string()
}

fn post(uri: &str, body: &str) -> String {
    shown(&Request::post(uri).body(body).expect("a valid request"))
}

fn get(uri: &str) -> String {
    shown(&Request::get(uri).body("").expect("a valid request"))
}

fn post_with(header: (&str, &str), uri: &str, body: impl AsRef<[u8]>) -> String {
    shown(&Request::post(uri).header(header.0, header.1).body(body).expect("a valid request"))
}

/// Annex A of the cases; A5 and A29 need headers and follow below.
#[test]
fn every_usual_request_shape_has_its_lane() {
    let arn = "arn:aws:bedrock:us-east-1:111122223333:application-inference-profile/abc123";
    for (row, path, body, expected) in [
        ("A1", "/v1/chat/completions", r#"{"model":"gpt-4o","messages":[]}"#, "/v1|gpt-4o"),
        ("A2", "/v1/responses", r#"{"input":"hi","model":"gpt-4o"}"#, "/v1|gpt-4o"),
        (
            "A3",
            "/v1/embeddings",
            r#"{"input":["a","b"],"model":"text-embedding-3-small"}"#,
            "/v1|text-embedding-3-small|embedding",
        ),
        ("A4", "/v1/completions", r#"{"model":"m-instruct","prompt":"x"}"#, "/v1|m-instruct"),
        ("A8", "/openai/deployments/d1/chat/completions?api-version=2024-10-21", "", "/openai|d1"),
        ("A9", "/openai/v1/chat/completions", r#"{"model":"d1"}"#, "/openai/v1|d1"),
        ("A11", "/v1/messages", r#"{"model":"claude-x","max_tokens":8,"messages":[]}"#, "/v1|claude-x"),
        ("A14", "/v1beta/models/gemini-2.0-flash:streamGenerateContent?alt=sse", "{}", "/v1beta|gemini-2.0-flash"),
        ("A15", "/v1beta/models/gemini-2.0-flash:countTokens", "{}", "/v1beta|gemini-2.0-flash|other"),
        (
            "A16",
            "/v1/projects/p/locations/l/publishers/google/models/gemini-2.0-flash:generateContent",
            "{}",
            "/v1/projects/p/locations/l/publishers/google|gemini-2.0-flash",
        ),
        ("A18", "/model/us.vendor.m-v2%3A0/invoke-with-response-stream", "{}", "|us.vendor.m-v2:0"),
        (
            "A19",
            "/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A111122223333%3Aapplication-inference-profile%2Fabc123/converse",
            "{}",
            &format!("|{arn}"),
        ),
        ("A21", "/api/chat", r#"{"model":"llama3.2","messages":[],"stream":true}"#, "|llama3.2"),
        ("A22", "/api/embed", r#"{"model":"nomic-embed-text","input":"x"}"#, "|nomic-embed-text|embedding"),
        ("A23", "/api/v1/chat/completions", r#"{"model":"v/a:free"}"#, "/api/v1|v/a:free"),
        ("A25", "/v2/chat", r#"{"model":"command-x","messages":[]}"#, "/v2|command-x"),
    ] {
        let uri = format!("https://host.example{path}");
        assert_eq!(post(&uri, body), format!("https://host.example{expected}"), "{row}");
    }
}

/// Annex A28.
#[test]
fn lists_and_health_checks_do_not_mix_with_chat() {
    assert_eq!(get("https://gw.example/v1/models"), "https://gw.example/v1|*|other");
    assert_eq!(get("https://gw.example/v1/models/ft:base:org::abc"), "https://gw.example/v1|*|other");
    assert_eq!(get("https://gw.example/health"), "https://gw.example/health|*|other");
    assert_eq!(get("https://gw.example/v1/responses/resp_1"), "https://gw.example/v1|*|other");
    assert_eq!(get("https://gw.example/v1/chat/completions"), "https://gw.example/v1|*|other");
}

/// Annex A29.
#[test]
fn the_content_type_is_not_asked() {
    let lane = post_with(("content-type", "text/plain"), "https://gw.example/v1/chat/completions", r#"{"model":"m1"}"#);
    assert_eq!(lane, "https://gw.example/v1|m1");
}

/// Case 50.
#[test]
fn azure_deployments_win_over_the_body() {
    let path = "/openai/deployments/team-a-4o/chat/completions?api-version=2024-10-21";
    for host in ["https://a.example", "https://b.example"] {
        for body in [r#"{"messages":[]}"#, r#"{"model":"gpt-4o","messages":[]}"#] {
            assert_eq!(post(&format!("{host}{path}"), body), format!("{host}/openai|team-a-4o"));
        }
    }
    let embeddings = "https://a.example/openai/deployments/e%2D3/embeddings";
    assert_eq!(post(embeddings, "{}"), "https://a.example/openai|e-3|embedding");
    let unknown = "https://a.example/openai/deployments/d1/extensions/new";
    assert_eq!(post(unknown, "{}"), "https://a.example/openai|d1");
    assert_eq!(get("https://a.example/openai/deployments"), "https://a.example/openai|*|other");
    assert_eq!(get("https://a.example/openai/deployments/d1"), "https://a.example/openai|*|other");
}

/// Case 51.
#[test]
fn google_models_end_before_the_verb() {
    let body = r#"{"model":"models/other","contents":[]}"#;
    for (path, expected) in [
        ("/v1beta/models/gemini-2.0-flash:streamGenerateContent?alt=sse&key=secret", "/v1beta|gemini-2.0-flash"),
        ("/v1beta/models/gemini-2.0-flash:generateContent", "/v1beta|gemini-2.0-flash"),
        ("/v1beta/models/gemini-2.0-flash%3AgenerateContent", "/v1beta|gemini-2.0-flash"),
        ("/v1beta/models/gemini-2.0-flash:newVerb", "/v1beta|gemini-2.0-flash"),
        (
            "/v1/projects/p1/locations/us-central1/publishers/google/models/gemini-2.0-flash:generateContent",
            "/v1/projects/p1/locations/us-central1/publishers/google|gemini-2.0-flash",
        ),
        ("/v1beta/tunedModels/my-tune:generateContent", "/v1beta|my-tune"),
        ("/v1beta/models/embed-4:batchEmbedContents", "/v1beta|embed-4|embedding"),
        ("/v1/publishers/google/models/imagen-4:predict", "/v1/publishers/google|imagen-4|image"),
        ("/v1/publishers/google/models/text-embedding-5:predict", "/v1/publishers/google|text-embedding-5|embedding"),
        ("/v1/publishers/x/models/claude@20250101:streamRawPredict", "/v1/publishers/x|claude@20250101"),
    ] {
        assert_eq!(post(&format!("https://g.example{path}"), body), format!("https://g.example{expected}"), "{path}");
    }
}

/// Case 52.
#[test]
fn bedrock_spellings_of_one_id_share_a_lane() {
    let arn = "arn:aws:bedrock:us-east-1:111122223333:application-inference-profile/abc123";
    for (path, model) in [
        ("us.vendor.model-x-v2%3A0/invoke-with-response-stream", "us.vendor.model-x-v2:0"),
        ("us.vendor.model-x-v2:0/converse", "us.vendor.model-x-v2:0"),
        (
            "arn%3Aaws%3Abedrock%3Aus-east-1%3A111122223333%3Aapplication-inference-profile%2Fabc123/converse-stream",
            arn,
        ),
        ("arn:aws:bedrock:us-east-1:111122223333:application-inference-profile%2Fabc123/converse-stream", arn),
        ("arn:aws:bedrock:us-east-1:111122223333:application-inference-profile/abc123/converse-stream", arn),
        ("invoke/converse/invoke", "invoke/converse"),
    ] {
        let uri = format!("https://bedrock.example/model/{path}");
        assert_eq!(post(&uri, r#"{"model":"other"}"#), format!("https://bedrock.example|{model}"));
    }
}

#[test]
fn one_bedrock_verb_serves_models_of_all_sorts() {
    let invoke = |id: &str| post(&format!("https://bedrock.example/model/{id}/invoke"), "{}");
    assert_eq!(
        invoke("amazon.titan-embed-text-v2:0"),
        "https://bedrock.example|amazon.titan-embed-text-v2:0|embedding"
    );
    assert_eq!(invoke("amazon.nova-canvas-v1:0"), "https://bedrock.example|amazon.nova-canvas-v1:0|image");
    assert_eq!(post("https://bedrock.example/model/m/count-tokens", "{}"), "https://bedrock.example|m|other");
}

/// Case 54 and annex A5.
#[test]
fn multipart_bodies_are_not_scanned() {
    let part = b"--XyZ\r\n\r\n\x00\xff\r\n--X\r\n--XyZ\r\nname=\"model\"\r\n\r\nwhisper-1\r\n--XyZ--";
    let uri = "https://gw.example/v1/audio/transcriptions";
    let header = ("content-type", "Multipart/form-data; boundary=XyZ");
    assert_eq!(post_with(header, uri, part), "https://gw.example/v1|*|audio");
    assert_eq!(post_with(header, uri, r#"{"model":"m1"}"#), "https://gw.example/v1|*|audio");
}

/// Case 55.
#[test]
fn encoded_bodies_are_not_scanned_whatever_they_hold() {
    let uri = "https://gw.example/v1/chat/completions";
    let json = r#"{"model":"m1"}"#;
    for coding in ["gzip", "zstd", "foo", "identity, br"] {
        assert_eq!(post_with(("content-encoding", coding), uri, json), "https://gw.example/v1|*", "{coding}");
    }
    assert_eq!(post_with(("content-encoding", "zstd"), uri, b"\x28\xb5\x2f\xfd"), "https://gw.example/v1|*");
    for coding in ["identity", "Identity", ""] {
        assert_eq!(post_with(("content-encoding", coding), uri, json), "https://gw.example/v1|m1", "{coding}");
    }
}

/// Cases 57, 58, 61 and 62, which the scan's own tests hold in full.
#[test]
fn bodies_without_a_usable_model_fall_back() {
    let lane = |body: &str| post("https://gw.example/v1/chat/completions", body);
    assert_eq!(lane(r#"{"model":"small","messages":[],"model":"large"}"#), "https://gw.example/v1|large");
    assert_eq!(lane(r#"{"metadata":{"model":"inner"}}"#), "https://gw.example/v1|*");
    assert_eq!(lane(r#"{"model":["a"]}"#), "https://gw.example/v1|*");
    assert_eq!(lane("\u{feff}{\"model\":\"m1\"}"), "https://gw.example/v1|m1");
    assert_eq!(lane("not json"), "https://gw.example/v1|*");
}

/// Case 60.
#[test]
fn a_body_over_the_scan_limit_falls_back() {
    let request = Request::post("https://gw.example/v1/messages").body(r#"{"model":"m1"}"#).expect("a valid request");
    let lane = |limit| {
        let body = Some(request.body().as_bytes());
        derive(request.method(), request.uri(), request.headers(), body, limit).as_ref().to_string()
    };
    assert_eq!(lane(14), "https://gw.example/v1|m1");
    assert_eq!(lane(13), "https://gw.example/v1|*");
}

/// Case 61.
#[test]
fn a_name_too_long_for_any_model_makes_no_lane_of_its_own() {
    let body = format!(r#"{{"model":"{}"}}"#, "x".repeat(16 * 1024 + 1));
    assert_eq!(post("https://gw.example/v1/chat/completions", &body), "https://gw.example/v1|*");
    assert_eq!(post("https://gw.example/v1/novel", &body), "https://gw.example/v1/novel|*");
}

/// Case 61.
#[test]
fn long_and_odd_models_are_whole_in_the_lane_and_short_when_shown() {
    let long = "x".repeat(4096);
    let body = format!(r#"{{"model":"{long}"}}"#);
    let (method, uri) = (Method::POST, Uri::from_static("https://gw.example/v1/messages"));
    let headers = HeaderMap::new();
    let lane = derive(&method, &uri, &headers, Some(body.as_bytes()), SCAN_LIMIT);
    assert_eq!(lane.as_ref().model, Some(&long[..]));
    assert!(lane.as_ref().to_string().len() < 200);
    let odd = post("https://gw.example/v1/messages", r#"{"model":"a\u0000b\nc\"d"}"#);
    assert_eq!(odd, r#"https://gw.example/v1|a\u{0}b\nc\"d"#);
}

/// Case 66.
#[test]
fn a_body_that_is_not_in_memory_falls_back() {
    assert_eq!(post("https://gw.example/v1/chat/completions", ""), "https://gw.example/v1|*");
    assert_eq!(get("https://gw.example/v1/models"), "https://gw.example/v1|*|other");
}

#[test]
fn chat_and_embeddings_of_one_provider_share_an_endpoint() {
    let body = r#"{"model":"m"}"#;
    for (base, chat, embed) in [
        ("/v1", "/chat/completions", "/embeddings"),
        ("/api/v1", "/responses", "/embeddings"),
        ("/v1beta/openai", "/chat/completions", "/embeddings"),
        ("/openai/v1", "/responses", "/embeddings"),
        ("/openai", "/deployments/m/chat/completions", "/deployments/m/embeddings"),
        ("/v1beta", "/models/m:generateContent", "/models/m:embedContent"),
        ("/ollama", "/api/generate", "/api/embeddings"),
        ("/v2", "/chat", "/embed"),
        ("/v2", "/chat", "/rerank"),
        ("/files/models", "/chat/completions", "/embeddings"),
        ("/v1/account/gateway/openai", "/chat/completions", "/embeddings"),
        ("", "/messages", "/embeddings"),
    ] {
        let lane = |path| post(&format!("https://gw.example{base}{path}"), body);
        let endpoint = if base.is_empty() { "https://gw.example".into() } else { format!("https://gw.example{base}") };
        assert_eq!(lane(chat), format!("{endpoint}|m"));
        assert_eq!(lane(embed), format!("{endpoint}|m|embedding"));
    }
}

#[test]
fn other_calls_share_the_endpoint_as_well() {
    for (path, kind) in [
        ("/v1/images/generations", "image"),
        ("/v1/audio/speech", "audio"),
        ("/v1/files/file-1/content", "other"),
        ("/v1/files/v2", "other"),
        ("/v1/batches/b/cancel", "other"),
        ("/v1/moderations", "other"),
        ("/v1/messages/count_tokens", "other"),
        ("/v1/messages/batches/b/results", "other"),
        ("/v1/responses/resp_1/cancel", "other"),
        ("/v1/chat/completions/c1/messages", "other"),
        ("/v1/threads/t1/messages", "other"),
        ("/v1/models/messages", "other"),
    ] {
        let uri = format!("https://gw.example{path}");
        assert_eq!(post(&uri, ""), format!("https://gw.example/v1|*|{kind}"), "{path}");
    }
    assert_eq!(post("http://h.example:11434/api/show", r#"{"model":"m"}"#), "http://h.example:11434|m|other");
}

#[test]
fn an_unknown_post_is_chat_if_it_names_a_model() {
    assert_eq!(post("https://gw.example/v1/new", r#"{"model":"m1"}"#), "https://gw.example/v1/new|m1");
    assert_eq!(post("https://gw.example/v1/new", "{}"), "https://gw.example/v1/new|*|other");
    let put = Request::put("https://gw.example/v1/new").body(r#"{"model":"m1"}"#).expect("a valid request");
    assert_eq!(shown(&put), "https://gw.example/v1/new|m1|other");
}

#[test]
fn spellings_of_one_endpoint_are_folded() {
    for uri in [
        "https://gw.example/v1/messages",
        "HTTPS://GW.Example:443/v1/messages/",
        "https://user:secret@gw.example/v1//messages?key=secret",
        "https://gw.example//v1/messages//",
    ] {
        assert_eq!(post(uri, ""), "https://gw.example/v1|*", "{uri}");
    }
    assert_eq!(post("http://gw.example:80/V1/messages", ""), "http://gw.example/V1|*");
    assert_eq!(post("http://gw.example:443/messages", ""), "http://gw.example:443|*");
    assert_eq!(post("https://u:p@[2001:DB8::1]:8443/v1/messages", ""), "https://[2001:db8::1]:8443/v1|*");
}

#[test]
fn a_relative_uri_takes_the_host_header() {
    assert_eq!(post_with(("host", "GW.example:8080"), "/v1/messages", ""), "gw.example:8080/v1|*");
    assert_eq!(post_with(("host", "user:se/cret@gw.example"), "/v1/messages", ""), "gw.example/v1|*");
    assert_eq!(post_with(("host", "b.example"), "https://a.example/v1/messages", ""), "https://a.example/v1|*");
    assert_eq!(post("/v1/messages", ""), "/v1|*");
    assert_eq!(post("/messages", ""), "/|*");
}

#[test]
fn path_models_are_decoded_once() {
    let lane = |name: &str| post(&format!("https://g.example/v1/models/{name}:generateContent"), r#"{"model":"body"}"#);
    assert_eq!(lane("a%252Fb"), "https://g.example/v1|a%2Fb");
    assert_eq!(lane("a%2Fmodels%2Fb"), "https://g.example/v1|a/models/b");
    assert_eq!(lane("%c3%A9"), "https://g.example/v1|é");
    assert_eq!(lane("%ff%zz%4"), "https://g.example/v1|%ff%zz%4");
    assert_eq!(lane("a%zz%4"), "https://g.example/v1|a%zz%4");
    assert_eq!(lane("%20"), "https://g.example/v1|body");
}

#[test]
fn odd_uris_have_a_lane_too() {
    assert_eq!(get("*"), "/*|*|other");
    assert_eq!(get("https://gw.example"), "https://gw.example|*|other");
    assert_eq!(get("gw.example:443"), "gw.example:443|*|other");
    assert_eq!(post("https://gw.example/model/", "{}"), "https://gw.example/model|*|other");
    assert_eq!(post("https://gw.example/model/converse", "{}"), "https://gw.example/model/converse|*|other");
    assert_eq!(post("https://gw.example/converse/model", "{}"), "https://gw.example/converse/model|*|other");
    assert_eq!(post("https://gw.example/v1/models/:generateContent", "{}"), "https://gw.example/v1|*");
    assert_eq!(post(&format!("https://gw.example{}", "/a".repeat(30_000)), "{}").len(), 256 + "…|*|other".len());
}

fn hostile_path() -> impl Strategy<Value = String> {
    let segment = select(vec![
        "",
        "v1",
        "model",
        "models",
        "openai",
        "deployments",
        "chat",
        "completions",
        "converse",
        "invoke",
        "a:predict",
        "b%3Aconverse",
        "%2F",
        "%",
        "%f",
        "%ff",
        ":",
        "m:",
        "api",
        "messages",
        "files",
        "é",
        ".",
        "..",
        "@",
        "u:p@h",
    ]);
    vec(segment, 0..8).prop_map(|segments| segments.join("/"))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_request_fails_or_leaks_its_credentials(
        origin in select(vec!["", "https://user:s3cret@gw.example", "http://s3cret@[::1]:99"]),
        path in hostile_path(),
        body in "\\PC{0,20}",
        host in "\\PC{0,10}",
    ) {
        let uri = format!("{origin}/{path}?key=s3cret");
        if let Ok(request) = Request::post(uri).header("host", format!("u:s3cret@{host}")).body(body) {
            prop_assert!(!shown(&request).contains("s3cret"));
        }
    }
}
