//! Which lane a request goes through, and that nothing about a request is ever an error.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use tower::{ServiceExt, service_fn};
use tower_inflight::{Admitted, InflightLimitLayer, Kind, LaneKey, LaneOverride, Model};
use tower_layer::Layer;

use crate::support::*;

fn through(layer: &InflightLimitLayer) -> Client {
    Client::new(layer.layer(service_fn(|_: Query| std::future::ready(Ok::<_, Reset>(ok(Script::new([])))))))
}

/// The lane that the response names; none if the request passed by.
async fn lane_of(layer: &InflightLimitLayer, query: Query) -> Option<String> {
    let reply = send_query(&through(layer), query).await.unwrap();
    reply.extensions().get::<Admitted>().map(|admitted| admitted.lane().to_string())
}

async fn usual_lane(query: Query) -> Option<String> {
    lane_of(&InflightLimitLayer::new(limiter(1)), query).await
}

fn named(lane: &str) -> Option<String> {
    Some(lane.to_owned())
}

const FALLBACK: &str = "https://gw.example/v1|*";

#[tokio::test]
async fn a_lane_in_the_extensions_goes_before_everything() {
    let layer = InflightLimitLayer::new(limiter(1)).lane_by(|_| Some(LaneKey::new("by", "closure")));
    let mine = LaneKey::new("mine", "own");
    let query = with(with(chat(), Model::new("other")), mine.clone());
    assert_eq!(lane_of(&layer, query).await, named("mine|own"));
    // Also for kinds that are not limited.
    let query = with(post("/v1/embeddings", r#"{"model":"e"}"#), mine);
    assert_eq!(lane_of(&layer, query).await, named("mine|own"));
}

#[tokio::test]
async fn a_model_in_the_extensions_names_the_model_only() {
    assert_eq!(usual_lane(with(chat(), Model::new("other"))).await, named("https://gw.example/v1|other"));
}

#[tokio::test]
async fn a_rule_of_ones_own_falls_back_to_the_usual_one() {
    let layer = InflightLimitLayer::new(limiter(1)).lane_by(|head| {
        let account = head.headers.get("x-account")?.to_str().ok()?;
        Some(LaneKey::without_model(account))
    });
    let mut query = chat();
    assert_eq!(lane_of(&layer, query.clone()).await, named(LANE));
    query.headers_mut().insert("x-account", "acme".parse().unwrap());
    assert_eq!(lane_of(&layer, query).await, named("acme|*"));
}

#[tokio::test]
async fn embeddings_files_and_lists_pass_and_make_no_lane() {
    let limiter = limiter(1);
    let layer = InflightLimitLayer::new(limiter.clone());
    for path in ["/v1/embeddings", "/v1/images/generations", "/v1/audio/speech", "/v1/files", "/v1/models"] {
        assert_eq!(lane_of(&layer, post(path, r#"{"model":"m"}"#)).await, None, "{path}");
    }
    let list = Request::get("https://gw.example/v1/models").body(Full::default()).unwrap();
    assert_eq!(lane_of(&layer, list).await, None);
    assert_eq!(limiter.snapshot().lanes, []);
}

#[tokio::test]
async fn the_kinds_that_are_limited_can_be_chosen() {
    let layer = InflightLimitLayer::new(limiter(1)).limit_kinds([Kind::Embedding]);
    let embedding = post("/v1/embeddings", r#"{"model":"e"}"#);
    assert_eq!(lane_of(&layer, embedding).await, named("https://gw.example/v1|e|embedding"));
    assert_eq!(lane_of(&layer, chat()).await, None);
}

#[tokio::test]
async fn a_body_above_the_scan_limit_goes_to_the_fallback_lane() {
    let body = r#"{"model":"m"}"#;
    let limit = |bytes| InflightLimitLayer::new(limiter(1)).scan_limit(bytes);
    let query = || post("/v1/chat/completions", body);
    assert_eq!(lane_of(&limit(body.len()), query()).await, named(LANE));
    assert_eq!(lane_of(&limit(body.len() - 1), query()).await, named(FALLBACK));
}

/// The lane, and what the upstream got.
async fn sent(query: Query) -> (Option<String>, Query) {
    let seen: Arc<Mutex<Option<Query>>> = Arc::default();
    let client = answering(&limiter(1), {
        let seen = seen.clone();
        move |query| {
            *seen.lock().unwrap() = Some(query);
            ok(Script::new([]))
        }
    });
    let reply = send_query(&client, query).await.unwrap();
    let lane = reply.extensions().get::<Admitted>().map(|admitted| admitted.lane().to_string());
    (lane, seen.lock().unwrap().take().unwrap())
}

// Case 55.
#[tokio::test]
async fn a_compressed_body_goes_to_the_fallback_lane_untouched() {
    let zstd = Bytes::from_static(b"\x28\xb5\x2f\xfd\x04\x58");
    let plain = Bytes::from_static(br#"{"model":"m1"}"#);
    for (encoding, body) in [("gzip", plain.clone()), ("zstd", zstd), ("foo", plain.clone())] {
        let mut query = post("/v1/chat/completions", body.clone());
        query.headers_mut().insert("content-encoding", encoding.parse().unwrap());
        let (lane, got) = sent(query).await;
        assert_eq!(lane, named(FALLBACK));
        assert_eq!(got.headers()["content-encoding"], encoding);
        assert_eq!(got.into_body().collect().await.unwrap().to_bytes(), body);
    }
}

// Case 57.
#[tokio::test]
async fn of_two_models_the_last_counts() {
    let query = post("/v1/chat/completions", r#"{"model":"small","messages":[],"model":"large"}"#);
    assert_eq!(usual_lane(query).await, named("https://gw.example/v1|large"));
}

// Case 61.
#[tokio::test]
async fn a_model_that_is_no_name_goes_to_the_fallback_lane() {
    for model in ["null", "42", "[\"a\"]", "{\"id\":\"a\"}", "\"\"", "\"   \"", "true"] {
        let query = post("/v1/chat/completions", format!("{{\"model\":{model}}}"));
        assert_eq!(usual_lane(query).await, named(FALLBACK), "{model}");
    }
}

// Case 61.
#[tokio::test]
async fn an_odd_model_is_a_lane_of_its_own_with_a_tame_name() {
    let huge = "h".repeat(4 * 1024);
    let lane = usual_lane(asking(&huge)).await.unwrap();
    assert!(lane.len() < 200 && lane.starts_with("https://gw.example/v1|hhh"), "{lane}");

    let lane = usual_lane(asking("a\\u0000b\\n\\\"c\\\"")).await;
    assert_eq!(lane, named(r#"https://gw.example/v1|a\u{0}b\n\"c\""#));

    let limiter = limiter(1);
    let layer = InflightLimitLayer::new(limiter.clone());
    for end in ["x", "y"] {
        lane_of(&layer, asking(&format!("{huge}{end}"))).await;
    }
    assert_eq!(limiter.snapshot().lanes.len(), 2);
}

// Case 62.
#[tokio::test]
async fn a_byte_order_mark_is_passed_over_and_passed_on() {
    let body = Bytes::from_static(b"\xEF\xBB\xBF{\"model\":\"m1\",\"messages\":[]}");
    let (lane, got) = sent(post("/v1/chat/completions", body.clone())).await;
    assert_eq!(lane, named("https://gw.example/v1|m1"));
    assert_eq!(got.into_body().collect().await.unwrap().to_bytes(), body);
}

// Case 66.
#[tokio::test]
async fn a_streamed_request_goes_to_the_fallback_lane() {
    let limiter = limiter(1);
    let client = InflightLimitLayer::new(limiter.clone()).layer(service_fn(|request: Request<_>| async {
        let body: StreamBody<_> = request.into_body();
        Ok::<_, Infallible>(Response::new(Full::new(body.collect().await?.to_bytes())))
    }));
    let chunks = ["{\"mod", "el\":\"m\"}"].map(|chunk| Ok::<_, Infallible>(Frame::data(Bytes::from(chunk))));
    let request = Request::post("https://gw.example/v1/chat/completions");
    let request = request.body(StreamBody::new(futures_util::stream::iter(chunks))).unwrap();
    let reply = client.oneshot(request).await.unwrap();
    assert_eq!(reply.into_body().collect().await.unwrap().to_bytes(), r#"{"model":"m"}"#);
    assert_eq!(lane(&limiter).lane, FALLBACK);
}

#[tokio::test]
async fn credentials_stay_out_of_lane_names() {
    let query = Request::post("https://user:pw@gw.example/v1beta/models/g:generateContent?key=secret");
    let lane = usual_lane(query.body(Full::default()).unwrap()).await;
    assert_eq!(lane, named("https://gw.example/v1beta|g"));
}

async fn call(client: &Client, query: Query) {
    read(send_query(client, query).await.unwrap()).await.unwrap();
}

// Case 64.
#[tokio::test(start_paused = true)]
async fn a_flood_of_names_makes_no_flood_of_lanes() {
    let limiter = slots(2).max_lanes(64).build().unwrap();
    let client = answering(&limiter, |_| ok(Script::new([])));
    let held = send_query(&answering(&limiter, |_| ok(endless())), asking("held")).await.unwrap();
    send_query(&answering(&limiter, |_| busy("500")), asking("paused")).await.unwrap();
    for n in 0..100_000 {
        call(&client, asking(&format!("model-{n}"))).await;
    }
    for n in 0..10_000 {
        call(&client, post(&format!("/wp-admin/{n}.php"), r#"{"model":"m"}"#)).await;
    }
    let lanes = limiter.snapshot().lanes;
    assert!(lanes.len() <= 65, "{}", lanes.len());
    let find = |name: &str| lanes.iter().find(|lane| lane.lane.ends_with(name)).expect("busy lanes stay");
    assert_eq!(find("|held").inflight, 1);
    assert!(find("|paused").paused_until_s.is_some_and(|left| left >= 500.0));
    drop(held);
    assert_idle(&limiter);
}

#[tokio::test(start_paused = true)]
async fn a_lane_without_a_limit_is_still_counted() {
    let limiter = slots(1).lane(LaneOverride::new("*|m").max_inflight(0)).build().unwrap();
    let client = answering(&limiter, |_| ok(endless()));
    let mut open = Vec::new();
    for _ in 0..50 {
        open.push(send(&client).await.unwrap());
    }
    let lane = lane(&limiter);
    assert_eq!((lane.limit, lane.inflight, lane.queued), (0, 50, 0));
    drop(open);
    assert_idle(&limiter);
}

// Case 64.
#[tokio::test(start_paused = true)]
async fn where_every_lane_is_busy_newcomers_share_one() {
    let limiter = slots(1).max_lanes(2).build().unwrap();
    let client = answering(&limiter, |_| ok(endless()));
    let open = |model: &'static str| send_query(&client, asking(model));
    let (first, second) = (open("a").await.unwrap(), open("b").await.unwrap());
    let third = open("c").await.unwrap();
    let admitted: &Admitted = third.extensions().get().unwrap();
    assert_eq!(admitted.lane().to_string(), "other|*");
    let fourth = spawned(&client, asking("d")).await;
    assert_eq!(limiter.snapshot().lanes.len(), 3);
    drop(third);
    drop(fourth.await.unwrap().unwrap());

    drop(first);
    let fifth = open("e").await.unwrap();
    let admitted: &Admitted = fifth.extensions().get().unwrap();
    assert_eq!(admitted.lane().to_string(), "https://gw.example/v1|e");
    drop((second, fifth));
    assert_idle(&limiter);
}
