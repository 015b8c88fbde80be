//! The Rust worker for `python -m benchmarks.peers`: one role per run, one line of JSON as the answer.
//!
//! The arguments are the role and a number of jobs; see `benchmarks/peers/program.py`. The URL of the database is
//! in BENCH_DSN. The worker has the fastest of the settings that were tried.
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use graphile_worker::tokio_postgres::TokioPostgresDatabase;
use graphile_worker::{
    Database, DbExecutor, DbParams, IntoTaskHandlerResult, JobSpec, LocalQueueConfig, RawJobSpec, TaskHandler,
    WorkerContext, WorkerOptions, WorkerUtils,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const BATCH: u64 = 1000;
const WARM_UP: u64 = 20;
const PAUSE: Duration = Duration::from_millis(2);
const IS_LEFT: &str = "select exists (select from graphile_worker._private_jobs) as found";

static STARTED: AtomicU64 = AtomicU64::new(0);
static FIRST: OnceLock<Instant> = OnceLock::new();
static STARTS: OnceLock<UnboundedSender<Instant>> = OnceLock::new(); // only while latency is measured

#[derive(Deserialize, Serialize)]
#[serde(transparent)]
struct Bench(Value);

impl TaskHandler for Bench {
    const IDENTIFIER: &'static str = "bench";

    async fn run(self, _context: WorkerContext) -> impl IntoTaskHandlerResult {
        FIRST.get_or_init(Instant::now);
        STARTED.fetch_add(1, Ordering::Release);
        if let Some(starts) = STARTS.get() {
            let _ = starts.send(Instant::now());
        }
        Ok::<(), String>(())
    }
}

/// Seconds of CPU time, and megabytes of memory at most.
fn used() -> (f64, f64) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks = |position: usize| fields.get(position).and_then(|each| each.parse::<f64>().ok()).unwrap_or(0.0);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = peak.and_then(|line| line.trim().split(' ').next()?.parse::<f64>().ok()).unwrap_or(0.0);
    ((ticks(11) + ticks(12)) / 100.0, kilobytes / 1024.0)
}

async fn add(utils: &WorkerUtils, number: u64) -> Result<(), Failure> {
    utils.add_raw_job("bench", json!({"id": number}), JobSpec::default()).await?;
    Ok(())
}

async fn add_many(utils: &WorkerUtils, jobs: u64) -> Result<(), Failure> {
    for first in (0..jobs).step_by(BATCH as usize) {
        let specs: Vec<RawJobSpec> = (first..jobs.min(first + BATCH))
            .map(|number| RawJobSpec {
                identifier: "bench".to_string(),
                payload: json!({"id": number}),
                spec: JobSpec::default(),
            })
            .collect();
        utils.add_raw_jobs(&specs).await?;
    }
    Ok(())
}

/// With a local queue; delays and frequent polls make it faster for a backlog, and slower for single jobs.
async fn start_worker(database: &Database, backlog: bool) -> Result<(), Failure> {
    let mut options = WorkerOptions::default()
        .database(database.clone())
        .concurrency(100)
        .local_queue(LocalQueueConfig::default().with_size(5000))
        .define_job::<Bench>();
    if backlog {
        options = options
            .poll_interval(Duration::from_millis(5))
            .complete_job_batch_delay(Duration::from_millis(1))
            .fail_job_batch_delay(Duration::from_millis(1));
    }
    let worker = options.init().await?;
    tokio::spawn(async move { worker.run().await });
    Ok(())
}

/// Until every job has run and none is in the table. The table is asked only when all have started.
async fn drain(database: &Database, jobs: u64) -> Result<Value, Failure> {
    let (before, _) = used();
    start_worker(database, true).await?;
    while STARTED.load(Ordering::Acquire) < jobs {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let params: fn() -> DbParams = || Vec::new().into();
    while DbExecutor::fetch_one(database, IS_LEFT, params()).await?.try_get::<bool>("found")? {
        tokio::time::sleep(PAUSE).await;
    }
    let seconds = FIRST.get().map(Instant::elapsed).unwrap_or_default().as_secs_f64();
    let (after, peak) = used();
    Ok(json!({"jobs": jobs, "seconds": seconds, "cpu": after - before, "memory": peak}))
}

async fn latency(database: &Database, utils: &WorkerUtils, samples: u64) -> Result<Value, Failure> {
    let (sender, mut starts) = unbounded_channel();
    STARTS.set(sender).map_err(|_| "latency is measured once")?;
    start_worker(database, false).await?;
    let mut milliseconds = Vec::new();
    for number in 0..WARM_UP + samples {
        let began = Instant::now();
        add(utils, number).await?;
        let start = starts.recv().await.ok_or("the worker has ended")?;
        if number >= WARM_UP {
            milliseconds.push((start - began).as_secs_f64() * 1000.0);
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(json!({"milliseconds": milliseconds}))
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    tracing_subscriber::fmt().with_env_filter("error").with_ansi(false).with_writer(std::io::stderr).init();
    let role = std::env::args().nth(1).ok_or("the role is missing")?;
    let jobs: u64 = std::env::args().nth(2).unwrap_or_default().parse().unwrap_or(0);
    let database: Database = TokioPostgresDatabase::from_url(&std::env::var("BENCH_DSN")?, 20)?.into();
    let utils = WorkerUtils::new(database.clone(), "graphile_worker");
    let answer = match role.as_str() {
        "setup" => {
            utils.migrate().await?;
            json!({})
        }
        "add" | "fill" => {
            let began = Instant::now();
            if role == "fill" {
                add_many(&utils, jobs).await?;
            } else {
                for number in 0..jobs {
                    add(&utils, number).await?;
                }
            }
            json!({"jobs": jobs, "seconds": began.elapsed().as_secs_f64()})
        }
        "drain" => drain(&database, jobs).await?,
        "latency" => latency(&database, &utils, jobs).await?,
        other => return Err(format!("no role {other}").into()),
    };
    println!("{answer}");
    std::process::exit(0)
}
