//! N1: going round a busy lane.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, HOST};
use http::{HeaderValue, Request, Response};
use http_body_util::Full;
use tower::{BoxError, Layer, Service, ServiceExt};
use tower_inflight::{
    BreakerConfig, Candidate, InflightLimitLayer, Outcome, Pause, QueueAwareRouter, RouteError, Routing, Verdict,
};

use super::*;

type Sent = Arc<Mutex<Vec<Request<Full<Bytes>>>>>;

fn local() -> Candidate {
    Candidate::new("http://localhost:8080/v1").expect("a URL").with_model("gemma")
}

fn cloud() -> Candidate {
    let token = HeaderValue::from_static("Bearer cloud");
    Candidate::new("https://gw.example/v1/").expect("a URL").with_model("acme/smart").with_header(AUTHORIZATION, token)
}

struct World {
    limiter: Limiter,
    sent: Sent,
    routing: Routing,
}

impl World {
    fn new(routing: Routing) -> Self {
        Self { limiter: limiter(), sent: Sent::default(), routing }
    }

    fn with_breaker(min_calls: u32) -> Self {
        let breaker = BreakerConfig { min_calls, ..BreakerConfig::default() };
        let limiter = Limiter::builder().max_inflight(1).interactive_reserve(0).breaker(breaker).build();
        Self { limiter: limiter.expect("a valid configuration"), ..Self::new(Routing::QueueAware) }
    }

    fn router(
        &self,
    ) -> impl Service<Request<Full<Bytes>>, Response: Send, Error = BoxError, Future: Send> + Clone + use<> {
        let sent = self.sent.clone();
        let client = tower::service_fn(move |request: Request<Full<Bytes>>| {
            sent.lock().expect("not poisoned").push(request);
            async { Ok::<_, BoxError>(Response::new(Full::<Bytes>::default())) }
        });
        let limited = InflightLimitLayer::new(self.limiter.clone()).layer(client);
        let router = QueueAwareRouter::new(limited, self.limiter.clone(), [local(), cloud()]);
        router.expect("two candidates").with_routing(self.routing)
    }

    fn hold(&self, candidate: &Candidate) -> Permit {
        self.limiter.try_acquire(candidate.lane(), Priority::Default).expect("a slot is free")
    }

    fn hosts(&self) -> Vec<String> {
        let sent = self.sent.lock().expect("not poisoned");
        sent.iter().map(|request| request.uri().host().expect("it was rewritten").to_owned()).collect()
    }
}

fn request() -> Request<Full<Bytes>> {
    Request::post("/chat/completions?x=1").body(Full::from(r#"{"model":"any","messages":[]}"#)).expect("a request")
}

#[tokio::test(start_paused = true)]
async fn a_request_is_rewritten_for_its_candidate_uri_headers_and_model() {
    let world = World::new(Routing::QueueAware);
    let _busy = world.hold(&local());
    let mut original = request();
    original.headers_mut().insert(AUTHORIZATION, HeaderValue::from_static("Bearer local"));
    original.headers_mut().insert(HOST, HeaderValue::from_static("localhost"));
    original.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from_static("29"));
    world.router().oneshot(original).await.map(drop).expect("the cloud is idle");
    let sent = world.sent.lock().expect("not poisoned").pop().expect("one was sent");
    assert_eq!(sent.uri(), "https://gw.example/v1/chat/completions?x=1");
    assert_eq!(
        (&sent.headers()[AUTHORIZATION], sent.headers().get(HOST)),
        (&HeaderValue::from_static("Bearer cloud"), None)
    );
    assert_eq!(sent.headers()[CONTENT_LENGTH], "36");
    let body = http_body_util::BodyExt::collect(sent.into_body()).await.expect("it is there").to_bytes();
    assert_eq!(body, r#"{"model":"acme/smart","messages":[]}"#);
}

#[tokio::test(start_paused = true)]
async fn a_busy_candidate_is_skipped_for_an_idle_one() {
    let world = World::new(Routing::QueueAware);
    world.router().oneshot(request()).await.map(drop).expect("idle");
    let _busy = world.hold(&local());
    world.router().oneshot(request()).await.map(drop).expect("the other is idle");
    assert_eq!(world.hosts(), ["localhost", "gw.example"]);
}

#[tokio::test(start_paused = true)]
async fn a_candidate_whose_lane_is_paused_is_busy_until_the_pause_is_over() {
    let world = World::new(Routing::QueueAware);
    world.hold(&local()).settle(Verdict::new(Outcome::Overload).with_pause(Pause::For(secs(30))));
    world.router().oneshot(request()).await.map(drop).expect("the other is idle");
    tokio::time::advance(secs(32)).await;
    world.router().oneshot(request()).await.map(drop).expect("idle");
    assert_eq!(world.hosts(), ["gw.example", "localhost"]);
}

#[tokio::test(start_paused = true)]
async fn a_candidate_whose_breaker_is_open_is_busy_until_it_may_be_tried() {
    let world = World::with_breaker(2);
    for _ in 0..2 {
        world.hold(&local()).settle(Outcome::ServerError);
    }
    world.router().oneshot(request()).await.map(drop).expect("the other is idle");
    tokio::time::advance(secs(60)).await;
    world.router().oneshot(request()).await.map(drop).expect("a trial");
    assert_eq!(world.hosts(), ["gw.example", "localhost"]);
}

#[tokio::test(start_paused = true)]
async fn when_all_are_busy_nobody_is_skipped() {
    let world = World::new(Routing::QueueAware);
    let (_cloud, busy) = (world.hold(&cloud()), world.hold(&local()));
    let mut call = Box::pin(world.router().oneshot(request()));
    assert!(poll!(&mut call).is_pending());
    drop(busy);
    call.await.map(drop).expect("its turn");
    assert_eq!(world.hosts(), ["localhost"]);
}

#[tokio::test(start_paused = true)]
async fn routing_is_off_by_default_per_router_and_per_request() {
    assert_eq!(Routing::default(), Routing::FirstCandidate);
    let world = World::new(Routing::default());
    let _busy = world.hold(&local());
    let mut call = Box::pin(world.router().oneshot(request()));
    assert!(poll!(&mut call).is_pending());
    let mut on = request();
    on.extensions_mut().insert(Routing::QueueAware);
    world.router().oneshot(on).await.map(drop).expect("the other is idle");
    assert_eq!(world.hosts(), ["gw.example"]);
    let mut off = request();
    off.extensions_mut().insert(Routing::FirstCandidate);
    let mut call = Box::pin(World { routing: Routing::QueueAware, ..world }.router().oneshot(off));
    assert!(poll!(&mut call).is_pending());
}

#[tokio::test(start_paused = true)]
async fn a_run_skips_once_at_its_start_and_stays() {
    let (world, queue) = (World::new(Routing::QueueAware), slots(2));
    let run = start(&queue, "ann");
    let router = world.router();
    let busy = world.hold(&local());
    run.turn(router.clone().oneshot(request())).await.map(drop).expect("the cloud is idle");
    drop(busy);
    run.turn(router.clone().oneshot(request())).await.map(drop).expect("it stays");
    let held = world.hold(&cloud());
    let mut call = Box::pin(run.turn(router.clone().oneshot(request())));
    assert!(poll!(&mut call).is_pending(), "it has had its skip");
    drop(held);
    call.await.map(drop).expect("its turn");
    assert_eq!(world.hosts(), ["gw.example"; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_lost_its_place_after_lending_skips_once_more() {
    let (world, queue) = (World::new(Routing::QueueAware), slots(1));
    let lender = start(&queue, "ann");
    let router = world.router();
    lender.turn(router.clone().oneshot(request())).await.map(drop).expect("idle");
    let busy = world.hold(&local());
    let call = tokio::spawn(lender.turn(router.clone().oneshot(request())));
    tokio::task::yield_now().await;
    assert_eq!(lender.status(), RunStatus::Lent);
    // The lane's slot is granted to it, lapses for want of its run slot, and goes to one outside of any run.
    let borrower = start(&queue, "bob");
    let other = world.limiter.acquire(local().lane(), Priority::Default);
    let other = tokio::spawn(other);
    tokio::task::yield_now().await;
    drop(busy);
    let other = other.await.expect("no panic").expect("the slot that lapsed");
    borrower.finish().expect("it ran");
    tokio::task::yield_now().await;
    drop(other);
    call.await.expect("no panic").map(drop).expect("its place in line was kept");
    let _busy = world.hold(&local());
    lender.turn(router.clone().oneshot(request())).await.map(drop).expect("the cloud is idle");
    assert_eq!(world.hosts(), ["localhost", "localhost", "gw.example"]);
    let _busy = world.hold(&cloud());
    let mut last = Box::pin(lender.turn(router.oneshot(request())));
    assert!(poll!(&mut last).is_pending(), "it has had both skips");
}

#[test]
fn bad_candidates_are_refused_by_name() {
    let nobody: [Candidate; 0] = [];
    assert_eq!(QueueAwareRouter::new((), limiter(), nobody).expect_err("none"), RouteError::NoCandidates);
    for base in ["", "/v1", "localhost", "http://", "https://gw.example/v1?key=secret"] {
        assert_eq!(Candidate::new(base).expect_err("no base"), RouteError::InvalidBase(base.to_owned()), "{base}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_model_goes_to_its_candidate_as_it_is() {
    let world = World::new(Routing::QueueAware);
    let request = Request::post("/chat/completions").body(Full::from("not JSON")).expect("a request");
    world.router().oneshot(request).await.map(drop).expect("idle");
    let sent = world.sent.lock().expect("not poisoned").pop().expect("one was sent");
    let body = http_body_util::BodyExt::collect(sent.into_body()).await.expect("it is there").to_bytes();
    assert_eq!(body, "not JSON");
}
