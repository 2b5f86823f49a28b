//! `strake daemon`: serves arrays and the management API until it is told to stop.
//!
//! Start: take the lock on the state folder and the socket, start the node, bring back arrays
//! and exports, then answer. The socket exists from the beginning, so that clients wait instead
//! of failing; they are answered when everything is up, or after [`START_PATIENCE`] when a drive
//! keeps an array from coming up. Stop (SIGTERM, SIGINT): exports, arrays, node; exit code 0.
//! A panic is a mistake of ours: it ends the process, and the next start finds a consistent state.

pub mod backend;
pub mod convert;
pub mod exports;
pub mod http;
pub mod manager;
#[cfg(test)]
pub mod mock;
mod socket;
pub mod state;

use crate::cli::daemon::DaemonArgs;
use anyhow::Context;
use backend::NodeBackend;
use exports::Served;
use manager::{Config, Manager};
use state::Store;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use strake_node::{Node, NodeConfig};
use tokio::signal::unix::{SignalKind, signal};
use tracing::{info, warn};

/// How long the first answer waits for arrays to come up.
const START_PATIENCE: Duration = Duration::from_secs(20);
/// How often the state file is brought up to date with running arrays.
const TICK: Duration = Duration::from_secs(5);
/// How long requests at work may take to end at shutdown.
const GOODBYE: Duration = Duration::from_secs(5);
/// Reactors when none were asked for: one per core, at most this many.
const CORES_MAX: usize = 4;

/// Runs the daemon until a signal ends it. Errors are those of the start.
pub fn run(socket: &Path, args: &DaemonArgs) -> anyhow::Result<()> {
    let began = Instant::now();
    log_to_stderr(args.log.as_deref())?;
    abort_on_panic();
    // Before anything is locked or made.
    let kernel = strake_codec::kernel_choice()?;
    let run_dir = match (&args.run_dir, socket.parent()) {
        (Some(dir), _) => dir.clone(),
        (None, Some(dir)) if dir != Path::new("") => dir.to_owned(),
        (None, _) => PathBuf::from("."),
    };
    let run_dir = std::path::absolute(&run_dir).context("cannot tell the current folder")?;
    let state_dir =
        std::path::absolute(&args.state_dir).context("cannot tell the current folder")?;
    for dir in socket.parent().into_iter().chain([run_dir.as_path()]) {
        std::fs::create_dir_all(dir)
            .with_context(|| format!("cannot make the folder {}", dir.display()))?;
    }
    let (store, state) = Store::open(&state_dir)?;
    let socket = socket::Socket::bind(socket)?;
    exports::clear_stale_mount(&run_dir);

    let config = Config {
        state_dir,
        run_dir,
        cores: cores(args.cores),
        memory_bytes: usize::try_from(args.memory).context("--memory is too large")?,
        kernel: kernel.to_string(),
        began,
    };
    announce(&config, socket.path());
    let node = Node::start(NodeConfig {
        cores: config.cores,
        memory_bytes: config.memory_bytes,
        host_id: state.host_id,
    })?;
    let servers = Arc::new(Served::new(&config.run_dir));
    let backend = Arc::new(NodeBackend::new(node));
    let manager = Arc::new(Manager::new(config, store, state, backend, servers));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("strake-control")
        .enable_all()
        .build()
        .context("cannot start the control threads")?;
    let socket_path = socket.path().to_owned();
    let served = runtime.block_on(serve(&manager, socket));
    manager.shutdown();
    // Clients of a stopped daemon then read that there is none.
    let _ = std::fs::remove_file(socket_path);
    info!("stopped");
    // A command that hangs in a drive must not keep the process.
    runtime.shutdown_timeout(Duration::from_secs(1));
    served
}

/// Answers requests until a signal comes.
async fn serve(manager: &Arc<Manager>, socket: socket::Socket) -> anyhow::Result<()> {
    let listener = socket.listen().context("cannot listen on the socket")?;
    let mut end = signals()?;
    let start = manager.clone();
    let started = tokio::task::spawn_blocking(move || start.start_all());
    tokio::select! {
        result = tokio::time::timeout(START_PATIENCE, started) => match result {
            Ok(joined) => joined.context("bringing arrays back failed")?,
            Err(_) => warn!("some arrays are still being started; `strake array list` shows them"),
        },
        _ = end.recv() => return Ok(()),
    }
    info!("ready");
    let ticker = tokio::spawn(tick(manager.clone()));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let app = http::router(manager.clone());
    let server = axum::serve(listener, app).with_graceful_shutdown(async move {
        let _ = stopped.await;
    });
    let server = tokio::spawn(server.into_future());
    end.recv().await;
    info!("stopping");
    ticker.abort();
    let _ = stop.send(());
    if tokio::time::timeout(GOODBYE, server).await.is_err() {
        warn!("some requests did not end in time and are cut off");
    }
    // The second signal ends the process at once: a drive may hang.
    tokio::spawn(async move {
        end.recv().await;
        warn!("second signal: exiting without a clean stop");
        std::process::exit(1);
    });
    Ok(())
}

/// A channel on which SIGTERM and SIGINT arrive.
fn signals() -> anyhow::Result<tokio::sync::mpsc::Receiver<()>> {
    let (sender, receiver) = tokio::sync::mpsc::channel(2);
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let mut stream = signal(kind).context("cannot listen for signals")?;
        let sender = sender.clone();
        tokio::spawn(async move {
            while stream.recv().await.is_some() {
                if sender.send(()).await.is_err() {
                    return;
                }
            }
        });
    }
    Ok(receiver)
}

async fn tick(manager: Arc<Manager>) {
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let manager = manager.clone();
        let _ = tokio::task::spawn_blocking(move || manager.tick()).await;
    }
}

fn cores(asked: usize) -> usize {
    match asked {
        0 => std::thread::available_parallelism().map_or(1, |cores| cores.get().min(CORES_MAX)),
        asked => asked,
    }
}

fn announce(config: &Config, socket: &Path) {
    info!(
        version = env!("CARGO_PKG_VERSION"),
        socket = %socket.display(),
        state_dir = %config.state_dir.display(),
        run_dir = %config.run_dir.display(),
        cores = config.cores,
        memory = %crate::size::human(config.memory_bytes as u64),
        kernel = %config.kernel,
        "strake daemon starts"
    );
}

fn log_to_stderr(level: Option<&str>) -> anyhow::Result<()> {
    use tracing_subscriber::EnvFilter;
    let filter = match level {
        Some(level) => EnvFilter::try_new(level)
            .with_context(|| format!("--log {level}: use error, warn, info, debug or trace"))?,
        None => EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info")),
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .init();
    Ok(())
}

fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        eprintln!(
            "strake: this is a mistake of the program, please report it; starting the daemon again is safe"
        );
        std::process::abort();
    }));
}
