//! A peer in Rust: it adds and changes jobs, and works, as lines on standard input tell it.
//!
//! The argument is the URL of the database. Each line is JSON, `["call", argument, ...]`; the answer is a line
//! `{"answer": ...}` or `{"error": "..."}`. `PROTOCOL` in `../protocol.py` lists the calls. At the end of
//! standard input, or on SIGTERM, a worker stops gracefully.
use std::io::{BufRead, Write};
use std::sync::Arc;
use std::time::Duration;

use graphile_worker::tokio_postgres::TokioPostgresDatabase;
use graphile_worker::worker_utils::types::RescheduleJobOptions;
use graphile_worker::{
    BatchTaskHandler, Database, DbExecutor, DbParams, DbRow, DbValue, IntoBatchTaskHandlerResult,
    IntoTaskHandlerResult, JobKeyMode, JobSpec, LocalQueueConfig, RawJobSpec, TaskHandler, Worker,
    WorkerContext, WorkerContextExt, WorkerOptions, WorkerRecoveryConfig, WorkerUtils,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

type Failure = Box<dyn std::error::Error + Send + Sync>;

// -- tasks -------------------------------------------------------------------------------------------------

async fn row(context: &WorkerContext, statement: &str, values: Vec<DbValue>) -> Result<DbRow, String> {
    let params: DbParams = values.into();
    DbExecutor::fetch_one(context.database(), statement, params).await.map_err(|error| error.to_string())
}

async fn begin(context: &WorkerContext) -> Result<i64, String> {
    let job = context.job();
    let values = vec![
        DbValue::Text("rust".to_string()),
        DbValue::I32(std::process::id() as i32),
        DbValue::I64(*job.id()),
        DbValue::Text(job.task_identifier().clone()),
        DbValue::I32Opt(*job.job_queue_id()),
        DbValue::I32(i32::from(*job.attempts())),
        DbValue::TextOpt(job.key().clone()),
        DbValue::Json(context.payload().clone()),
    ];
    let statement = "select public.peer_begin($1, $2, $3, $4, $5, $6, $7, $8) as run";
    row(context, statement, values).await?.try_get("run").map_err(|error| error.to_string())
}

async fn end(context: &WorkerContext, run: i64, outcome: &str) -> Result<(), String> {
    let values = vec![DbValue::I64(run), DbValue::Text(outcome.to_string())];
    row(context, "select public.peer_end($1, $2) as run", values).await.map(|_| ())
}

/// What a payload asks for; see `protocol.py`.
async fn act(context: &WorkerContext, payload: &Value) -> Result<(), String> {
    if let Some(milliseconds) = payload["pause"].as_u64() {
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
    }
    if let Some(gate) = payload["gate"].as_str() {
        let is_open = async || -> Result<bool, String> {
            let values = vec![DbValue::Text(gate.to_string())];
            row(context, "select public.peer_gate_is_open($1) as open", values)
                .await?
                .try_get("open")
                .map_err(|error| error.to_string())
        };
        while !is_open().await? {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    if let Some(given) = payload["add"].as_array() {
        let spec = job_spec(given.get(2).unwrap_or(&Value::Null)).map_err(|error| error.to_string())?;
        let name = given[0].as_str().unwrap_or_default();
        context.add_raw_job(name, given[1].clone(), spec).await.map_err(|error| error.to_string())?;
    }
    let attempts = i64::from(*context.job().attempts());
    match payload["fail_before"].as_i64() {
        Some(attempt) if attempts < attempt => Err(format!("attempt {attempts} fails")),
        _ => Ok(()),
    }
}

async fn record(context: &WorkerContext) -> Result<(), String> {
    let run = begin(context).await?;
    let result = act(context, context.payload()).await;
    end(context, run, if result.is_ok() { "done" } else { "failed" }).await?;
    result
}

#[derive(Deserialize, Serialize)]
#[serde(transparent)]
struct Echo(Value);

impl TaskHandler for Echo {
    const IDENTIFIER: &'static str = "echo";

    async fn run(self, context: WorkerContext) -> impl IntoTaskHandlerResult {
        record(&context).await
    }
}

#[derive(Deserialize, Serialize)]
#[serde(transparent)]
struct Tick(Value);

impl TaskHandler for Tick {
    const IDENTIFIER: &'static str = "tick";

    async fn run(self, context: WorkerContext) -> impl IntoTaskHandlerResult {
        record(&context).await
    }
}

#[derive(Deserialize, Serialize)]
#[serde(transparent)]
struct Batch(Value);

impl BatchTaskHandler for Batch {
    const IDENTIFIER: &'static str = "batch";

    async fn run_batch(items: Vec<Self>, context: WorkerContext) -> impl IntoBatchTaskHandlerResult {
        let run = begin(&context).await.expect("a run that cannot be recorded");
        let mut results = Vec::new();
        for item in &items {
            results.push(act(&context, &item.0).await);
        }
        let outcome = if results.iter().all(Result::is_ok) { "done" } else { "failed" };
        end(&context, run, outcome).await.expect("a run that cannot be recorded");
        results
    }
}

// -- calls -------------------------------------------------------------------------------------------------

fn job_spec(given: &Value) -> Result<JobSpec, Failure> {
    let text = |name: &str| given[name].as_str().map(str::to_string);
    let number = |name: &str| given[name].as_i64().map(|value| value as i16);
    Ok(JobSpec {
        queue_name: text("queue_name"),
        run_at: text("run_at").map(|time| time.parse()).transpose()?,
        max_attempts: number("max_attempts"),
        job_key: text("job_key"),
        job_key_mode: match given["job_key_mode"].as_str() {
            None => None,
            Some("replace") => Some(JobKeyMode::Replace),
            Some("preserve_run_at") => Some(JobKeyMode::PreserveRunAt),
            Some("unsafe_dedupe") => Some(JobKeyMode::UnsafeDedupe),
            Some(other) => return Err(format!("no mode {other}").into()),
        },
        priority: number("priority"),
        flags: given["flags"].as_array().map(|flags| {
            flags.iter().filter_map(|flag| flag.as_str().map(str::to_string)).collect()
        }),
    })
}

fn text(argument: &Value) -> Result<&str, Failure> {
    argument.as_str().ok_or_else(|| format!("{argument} is no text").into())
}

fn job_ids(argument: &Value) -> Vec<i64> {
    argument.as_array().into_iter().flatten().filter_map(Value::as_i64).collect()
}

fn strings(argument: &Value) -> Vec<String> {
    let all = argument.as_array().into_iter().flatten();
    all.filter_map(|each| each.as_str().map(str::to_string)).collect()
}

struct Peer {
    database: Database,
    utils: WorkerUtils,
    worker: Option<Arc<Worker>>,
    stopped: Option<tokio::task::JoinHandle<()>>,
}

impl Peer {
    async fn call(&mut self, name: &str, arguments: &[Value]) -> Result<Value, Failure> {
        let null = Value::Null;
        let given = |position: usize| arguments.get(position).unwrap_or(&null);
        Ok(match name {
            "migrate" => {
                self.utils.migrate().await?;
                Value::Null
            }
            "add" => {
                let spec = job_spec(given(2))?;
                let job = self.utils.add_raw_job(text(given(0))?, given(1).clone(), spec).await?;
                json!(job.id())
            }
            "add_many" => {
                let specs: Result<Vec<RawJobSpec>, Failure> = given(0)
                    .as_array()
                    .into_iter()
                    .flatten()
                    .map(|each| {
                        Ok(RawJobSpec {
                            identifier: text(&each[0])?.to_string(),
                            payload: each[1].clone(),
                            spec: job_spec(&each[2])?,
                        })
                    })
                    .collect();
                let jobs = self.utils.add_raw_jobs(&specs?).await?;
                json!(jobs.iter().map(|job| *job.id()).collect::<Vec<i64>>())
            }
            "remove" => {
                self.utils.remove_job(text(given(0))?).await?;
                Value::Null
            }
            "reschedule" => {
                let spec = job_spec(given(1))?;
                let options = RescheduleJobOptions {
                    run_at: spec.run_at,
                    priority: spec.priority,
                    attempts: given(1)["attempts"].as_i64().map(|value| value as i16),
                    max_attempts: spec.max_attempts,
                };
                let jobs = self.utils.reschedule_jobs(&job_ids(given(0)), options).await?;
                json!(jobs.iter().map(|job| *job.id()).collect::<Vec<i64>>())
            }
            "give_up" => {
                let jobs = self.utils.permanently_fail_jobs(&job_ids(given(0)), text(given(1))?).await?;
                json!(jobs.iter().map(|job| *job.id()).collect::<Vec<i64>>())
            }
            "work" => self.work(given(0)).await?,
            other => return Err(format!("no call {other}").into()),
        })
    }

    async fn work(&mut self, given: &Value) -> Result<Value, Failure> {
        let milliseconds = |name: &str, default| Duration::from_millis(given[name].as_u64().unwrap_or(default));
        let mut options = WorkerOptions::default()
            .database(self.database.clone())
            .concurrency(given["concurrency"].as_u64().unwrap_or(4) as usize)
            .poll_interval(milliseconds("poll", 100))
            .define_job::<Echo>()
            .define_job::<Tick>()
            .define_batch_job::<Batch>();
        if let Some(size) = given["local_queue"].as_u64() {
            options = options
                .local_queue(LocalQueueConfig::default().with_size(size as usize))
                .complete_job_batch_delay(Duration::from_millis(2))
                .fail_job_batch_delay(Duration::from_millis(2));
        }
        if let Some(crontab) = given["crontab"].as_str() {
            options = options.with_cron(crontab).map_err(|error| format!("{error:?}"))?;
        }
        if given["recovery"] == json!(true) {
            options = options.worker_recovery(
                WorkerRecoveryConfig::default()
                    .heartbeat_interval(milliseconds("heartbeat", 1_000))
                    .sweep_interval(milliseconds("sweep", 300))
                    .recovery_delay(Duration::ZERO),
            );
        }
        for flag in strings(&given["forbidden_flags"]) {
            options = options.add_forbidden_flag(&flag);
        }
        for flag in strings(&given["accepted_flags"]) {
            options = options.add_accepted_flag(&flag);
        }
        if given["flag_allowlist"].is_array() {
            options = options.job_flag_allowlist(strings(&given["flag_allowlist"]));
        }
        let worker = Arc::new(options.init().await?);
        let id = worker.worker_id().clone();
        self.worker = Some(worker.clone());
        self.stopped = Some(tokio::spawn(async move {
            let status = match worker.run().await {
                Ok(()) => 0,
                Err(error) => {
                    eprintln!("error: {error}");
                    1
                }
            };
            std::process::exit(status);
        }));
        Ok(json!(id))
    }
}

fn say(line: Value) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}

fn lines() -> tokio::sync::mpsc::UnboundedReceiver<String> {
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    tracing_subscriber::fmt().with_env_filter("warn").with_ansi(false).with_writer(std::io::stderr).init();
    let url = std::env::args().nth(1).ok_or("the URL of a database is missing")?;
    let database: Database = TokioPostgresDatabase::from_url(&url, 12)?.into();
    let utils = WorkerUtils::new(database.clone(), "graphile_worker");
    let mut peer = Peer { database, utils, worker: None, stopped: None };
    let mut lines = lines();
    while let Some(line) = lines.recv().await {
        let given: Vec<Value> = serde_json::from_str(&line)?;
        let name = text(given.first().unwrap_or(&Value::Null))?.to_string();
        match peer.call(&name, &given[1..]).await {
            Ok(answer) => say(json!({"answer": answer})),
            Err(error) => say(json!({"error": error.to_string()})),
        }
    }
    if let (Some(worker), Some(stopped)) = (peer.worker, peer.stopped) {
        worker.request_shutdown();
        let _ = stopped.await;
    }
    Ok(())
}
