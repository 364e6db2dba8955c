//! Calls are dropped at 100,000 random points, over real HTTP/1 and HTTP/2 connections, and nothing is left behind.
//!
//! `LEAK_SEED` repeats the choices of a run; which thread comes first is up to the machine.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;
use tower::{Layer, ServiceExt};
use tower_inflight::{
    BoxError, Call, CallEvent, InflightLimit, InflightLimitLayer, LaneKey, LaneOverride, Limiter, Priority,
    ResponseBody,
};

use self::reply::{Reply, Step};
use self::server::{Seen, Server};

#[path = "e2e/reply.rs"]
mod reply;
#[path = "e2e/server.rs"]
mod server;

const DROPS: usize = 100_000;
/// Several times the slots, so that there is a queue.
const CALLERS: usize = 48;
/// Of the wide lane. The narrow one has a single slot: there, nobody else's end makes up for a hand-off that is lost.
const SLOTS: u32 = 6;
/// Each has ports of its own for the connections that the drops use up.
const SERVERS: usize = 4;
const FRAMES: u64 = 3;

/// How far a call had come when it was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Point {
    New,
    Queued,
    /// Has its slot; no head yet.
    Sent,
    Head,
    /// Has a part of the body.
    Body,
    /// Has all of the body, and was not told so.
    End,
}

const POINTS: [Point; 6] = [Point::New, Point::Queued, Point::Sent, Point::Head, Point::Body, Point::End];

/// Written by the call, read by whoever drops it.
#[derive(Clone, Default)]
struct Reached(Arc<AtomicU8>);

impl Reached {
    fn set(&self, point: Point) {
        self.0.store(point as u8, Ordering::Relaxed);
    }

    fn get(&self) -> Point {
        POINTS[usize::from(self.0.load(Ordering::Relaxed))]
    }
}

/// How a call is going to be dropped.
enum Fate {
    /// After so many polls, whether it asked for them or not.
    Polled(u64),
    /// After so many frames of its body.
    Read(u64),
    /// From outside, while a task of its own drives it.
    Aborted(u64),
}

/// splitmix64
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn of<'a, T>(&mut self, these: &'a [T]) -> &'a T {
        &these[usize::try_from(self.below(these.len() as u64)).expect("an index")]
    }

    /// Half of the calls leave early, mostly while they wait.
    fn fate(&mut self) -> Fate {
        match self.below(8) {
            0..3 => Fate::Polled(self.below(3)),
            3 => Fate::Polled(self.below(60)),
            4 => Fate::Aborted(self.below(60)),
            _ => Fate::Read(self.below(FRAMES + 1)),
        }
    }
}

/// One protocol: its client, its servers, and a wide and a narrow lane.
struct Road {
    lanes: [LaneKey; 2],
    client: InflightLimit<Client<HttpConnector, Full<Bytes>>>,
    servers: Vec<Server>,
    limiter: Limiter,
}

impl Road {
    fn new(name: &'static str, servers: Vec<Server>) -> Self {
        let narrow = LaneOverride::new("narrow|*").max_inflight(1);
        let limiter = Limiter::builder().max_inflight(SLOTS).lane(narrow).build().expect("valid");
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let http = Client::builder(TokioExecutor::new()).http2_only(name == "h2").build(connector);
        let client = InflightLimitLayer::new(limiter.clone()).layer(http);
        Self { lanes: ["wide", "narrow"].map(LaneKey::without_model), client, servers, limiter }
    }

    fn request(&self, server: &Server, lane: &LaneKey, path: &str, call: Call) -> Request<Full<Bytes>> {
        let request = Request::post(server.url(path)).extension(lane.clone()).extension(call);
        request.body(Full::from("{}")).expect("a request")
    }

    async fn fresh_call_completes(&self) {
        for (server, lane) in self.servers.iter().flat_map(|server| self.lanes.iter().map(move |lane| (server, lane))) {
            let request = self.request(server, lane, "/whole", Call::new(Priority::Bulk));
            let response = self.client.clone().oneshot(request).await.expect("an answer");
            assert_eq!(response.collect().await.expect("whole").to_bytes(), "fine");
        }
    }

    #[track_caller]
    fn assert_idle(&self) {
        for lane in self.limiter.snapshot().lanes {
            assert_eq!((lane.inflight, lane.queued, lane.refused.len()), (0, 0, 0), "{lane:?}");
            let ended = lane.outcomes.values().sum::<u64>() + lane.abandoned;
            assert_eq!(lane.offered, ended, "{lane:?}");
        }
    }

    fn assert_within_limit(&self) {
        for lane in self.limiter.snapshot().lanes {
            assert!(lane.inflight <= lane.limit, "{lane:?}");
        }
    }
}

/// Bodies of three frames, with each way to end; one that goes on for ever; and one that does not even begin.
fn answer(seen: &Seen) -> Reply {
    let frames = |reply: Reply| reply.data("a").step(Step::Yield).data("b").step(Step::Yield).data("c");
    match (seen.uri.path(), seen.nth % 4) {
        ("/whole", _) => Reply::whole(200, "fine"),
        ("/never", _) => Reply::never(),
        (_, 0) => frames(Reply::ok()),
        (_, 1) => frames(Reply::ok().header("content-length", "3")),
        (_, 2) => frames(Reply::ok()).ends_apart(),
        _ => frames(Reply::ok()).step(Step::Hang),
    }
}

type Answer = Response<ResponseBody<Incoming>>;
type Running = Pin<Box<dyn Future<Output = Result<Answer, BoxError>> + Send>>;

/// Reads so many frames, and hands the answer on.
fn run(road: &Road, request: Request<Full<Bytes>>, frames: u64, reached: Reached) -> Running {
    let call = road.client.clone().oneshot(request);
    Box::pin(async move {
        let mut response = call.await?;
        reached.set(Point::Head);
        for nth in 1..=frames {
            if response.frame().await.transpose()?.is_none() {
                break;
            }
            reached.set(if nth == FRAMES { Point::End } else { Point::Body });
        }
        Ok(response)
    })
}

/// Makes calls until one is dropped before it is over. Returns how far it had come.
async fn drop_one(road: &Road, random: &mut Random) -> Point {
    loop {
        let reached = Reached::default();
        let heard = reached.clone();
        let call = Call::new(*random.of(&Priority::ALL)).with_listener(move |event| match event {
            CallEvent::Queued { .. } => heard.set(Point::Queued),
            CallEvent::Admitted(_) => heard.set(Point::Sent),
            _ => {}
        });
        let fate = random.fate();
        let path = if random.below(4) == 0 && !matches!(fate, Fate::Read(_)) { "/never" } else { "/stream" };
        let request = road.request(random.of(&road.servers), random.of(&road.lanes), path, call);
        let is_dropped = match fate {
            Fate::Polled(polls) => poll_and_drop(run(road, request, u64::MAX, reached.clone()), polls, random).await,
            Fate::Read(frames) => read_and_drop(run(road, request, frames, reached.clone()), random).await,
            Fate::Aborted(after) => abort(run(road, request, u64::MAX, reached.clone()), after).await,
        };
        if is_dropped {
            return reached.get();
        }
    }
}

async fn poll_and_drop(mut call: Running, polls: u64, random: &mut Random) -> bool {
    for _ in 0..polls {
        if poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_ready())).await {
            return false;
        }
        yield_now().await;
    }
    throw_away(call, random).await;
    true
}

async fn read_and_drop(call: Running, random: &mut Random) -> bool {
    // A connection that was closed while it idled ends a call by itself.
    let Ok(response) = call.await else { return false };
    for _ in 0..random.below(4) {
        yield_now().await;
    }
    throw_away(response, random).await;
    true
}

async fn abort(call: Running, after: u64) -> bool {
    let task = tokio::spawn(call);
    for _ in 0..after {
        yield_now().await;
    }
    task.abort();
    task.await.is_err_and(|error| error.is_cancelled())
}

/// Here, or in another task.
async fn throw_away(what: impl Send + 'static, random: &mut Random) {
    if random.below(4) == 0 {
        tokio::spawn(async move { drop(what) }).await.expect("no panic");
    }
}

fn seed() -> u64 {
    let given = std::env::var("LEAK_SEED").ok().and_then(|seed| seed.parse().ok());
    given.unwrap_or_else(|| RandomState::new().build_hasher().finish())
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// Case 1, at every point of a call.
#[test]
fn calls_dropped_at_a_hundred_thousand_random_points_leave_nothing_behind() {
    let seed = seed();
    println!("LEAK_SEED={seed}");
    let upstream = runtime();
    let servers = || upstream.block_on(join_all((0..SERVERS).map(|_| Server::start(answer))));
    let roads = [Road::new("h1", servers()), Road::new("h2", servers())].map(Arc::new);
    let points = runtime().block_on(drop_all(&roads, seed));
    for (point, count) in &points {
        println!("{point:?}: {count}");
    }
    assert_eq!(points.values().sum::<usize>(), DROPS);
    assert!(POINTS.iter().all(|point| points.contains_key(&("h1", *point)) && points.contains_key(&("h2", *point))));
}

/// Ends when for a long time no new call has been made.
async fn standstill(started: &AtomicUsize) {
    let mut before = usize::MAX;
    loop {
        let now = started.load(Ordering::Relaxed);
        if now == before {
            return;
        }
        before = now;
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
}

async fn drop_all(roads: &[Arc<Road>; 2], seed: u64) -> BTreeMap<(&'static str, Point), usize> {
    let started = Arc::new(AtomicUsize::new(0));
    let callers = (0..CALLERS).map(|nth| {
        let (name, road) = if nth % 2 == 0 { ("h1", roads[0].clone()) } else { ("h2", roads[1].clone()) };
        let (started, mut random) = (started.clone(), Random(seed.wrapping_add(nth as u64)));
        tokio::spawn(async move {
            let mut points = Vec::new();
            while started.fetch_add(1, Ordering::Relaxed) < DROPS {
                points.push((name, drop_one(&road, &mut random).await));
                road.assert_within_limit();
            }
            points
        })
    });
    let all = join_all(callers);
    let points_by_caller = tokio::select! {
        points = all => points,
        () = standstill(&started) => panic!("calls hang: {:?}", roads.each_ref().map(|road| road.limiter.snapshot())),
    };
    let mut points = BTreeMap::new();
    for caller in points_by_caller {
        for point in caller.expect("no panic") {
            *points.entry(point).or_default() += 1;
        }
    }
    for road in roads {
        road.assert_idle();
        let fresh = tokio::time::timeout(Duration::from_secs(60), road.fresh_call_completes()).await;
        assert!(fresh.is_ok(), "a fresh call hangs: {:?}", road.limiter.snapshot());
        road.assert_idle();
        for server in &road.servers {
            server.until("all drops are noticed", |counts| counts.open == 0).await;
        }
    }
    points
}
