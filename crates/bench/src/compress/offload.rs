//! Responses on an event loop as small as it can be, over an engine if there is one.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use slipstream_accelerators::engine::protocol::layout::Layout;
use slipstream_accelerators::engine::protocol::message::Aggregation;
use slipstream_accelerators::engine::{Device, EngineUser, Options};
use slipstream_compress::{Context, Method, Session, Settings};
use slipstream_offload::accelerator::{Accelerator, Health, Moment};
use slipstream_offload::instance::{self, Instance};
use slipstream_offload::scheduler::Scheduler;
use slipstream_offload::{
    Answer, Compression, JobToken, Notification, Operation, Pause, Reason, Ticket, submit,
};
use slipstream_testbed::processor::thread_cpu_time;

use super::Measured;
use crate::Error;

/// Bytes of content that are written to a session at a time, as nginx reads files.
const INPUT: usize = 32 * 1024;
/// The longest chunk that is measured, and so many of them fill the buffers that an instance can
/// have.
const CHUNK_BYTES: usize = 256 * 1024;
const REQUESTS: usize = 64;
const SLOTS: usize = 256;
/// Time that the engine may take to let a client in.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time after which an engine that sends nothing counts as dead.
const LATE: Timespec = Timespec {
    tv_sec: 5,
    tv_nsec: 0,
};

/// State that the sessions of the calling thread share. It is the thread's only one.
pub(super) struct Line {
    context: Context,
}

impl Line {
    /// All is compressed in software.
    pub(super) fn without_engine() -> Line {
        Line {
            context: Context::new(REQUESTS, CHUNK_BYTES),
        }
    }

    /// Chunks go to the engine at `socket`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if it does not let this process in.
    pub(super) fn with_engine(socket: PathBuf) -> Result<Line, Error> {
        let layout = Layout::new(SLOTS)
            .and_then(|layout| layout.with_buffers(REQUESTS, CHUNK_BYTES))
            .expect("as much as an instance can have");
        let options = Options {
            layout,
            weight: 1,
            aggregation: Aggregation::Adaptive,
            token: None,
            user: EngineUser::default(),
        };
        let device = Device::new(socket, options, PATIENCE)
            .map_err(Error::io("cannot make a client of the engine"))?;
        if device.health() != Health::Ready {
            return Err(Error::Unsupported(
                "the engine has not let this process in".to_owned(),
            ));
        }
        let instance = Instance::new(vec![Box::new(device)], Scheduler::default(), SLOTS)
            .map_err(Error::io("cannot make an instance"))?;
        instance::install(instance);
        let mut line = Line::without_engine();
        line.context.set_device(true);
        Ok(line)
    }

    /// One response, compressed.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when the engine does not answer.
    pub(super) fn compress_once(
        &mut self,
        settings: Settings,
        content: &[u8],
    ) -> Result<Vec<u8>, Error> {
        let mut compressed = Vec::new();
        let mut response = Response::new(settings, content, JobToken(0), &mut self.context);
        while !response.advance(content, &mut self.context, |block| {
            compressed.extend_from_slice(block);
        }) {
            while wait()?.is_empty() {}
            response.resume(&mut self.context);
        }
        Ok(compressed)
    }

    /// Compresses responses, `concurrency` at a time, until `window` is over.
    ///
    /// # Errors
    /// As [`compress_once`](Self::compress_once).
    pub(super) fn run(
        &mut self,
        settings: Settings,
        content: &[u8],
        concurrency: usize,
        window: Duration,
    ) -> Result<Measured, Error> {
        let context = &mut self.context;
        let (started, cpu) = (Instant::now(), thread_cpu_time());
        let mut pages = 0;
        let mut responses: Vec<Option<Response>> = (0..concurrency)
            .map(|number| Some(Response::new(settings, content, JobToken(number), context)))
            .collect();
        let mut ready: Vec<JobToken> = (0..concurrency).map(JobToken).collect();
        loop {
            context.begin_turn();
            for &JobToken(number) in &ready {
                while let Some(response) = &mut responses[number] {
                    response.resume(context);
                    if !response.advance(content, context, |_| {}) {
                        break;
                    }
                    pages += 1;
                    let next = || Response::new(settings, content, JobToken(number), context);
                    responses[number] = (started.elapsed() < window).then(next);
                }
            }
            if responses.iter().all(Option::is_none) {
                break;
            }
            ready = wait()?;
        }
        Ok(Measured {
            pages,
            wall: started.elapsed(),
            cpu: thread_cpu_time() - cpu,
        })
    }
}

impl Line {
    /// Hands the same chunk over to the engine again and again, `concurrency` times at a time,
    /// until `window` is over.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when the engine does not compress it.
    pub(super) fn hand_over(
        &mut self,
        method: Method,
        content: &[u8],
        concurrency: usize,
        window: Duration,
    ) -> Result<Measured, Error> {
        let (started, cpu) = (Instant::now(), thread_cpu_time());
        let mut pages = 0;
        let mut chunks: Vec<Chunk> = (0..concurrency).map(|_| Chunk::default()).collect();
        let mut ready: Vec<JobToken> = (0..concurrency).map(JobToken).collect();
        loop {
            for &JobToken(number) in &ready {
                let chunk = &mut chunks[number];
                pages += u64::from(chunk.take()?);
                if started.elapsed() < window {
                    chunk.submit(method, content, &Job(JobToken(number)))?;
                }
            }
            if chunks.iter().all(|chunk| chunk.ticket.is_none()) {
                break;
            }
            ready = wait()?;
        }
        Ok(Measured {
            pages,
            wall: started.elapsed(),
            cpu: thread_cpu_time() - cpu,
        })
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        instance::uninstall();
    }
}

/// A response on its way.
struct Response {
    session: Session,
    job: Job,
    written: usize,
}

impl Response {
    fn new(settings: Settings, content: &[u8], token: JobToken, context: &mut Context) -> Response {
        let length = content.len() as u64;
        Response {
            session: Session::new(settings, Some(length), context),
            job: Job(token),
            written: 0,
        }
    }

    fn resume(&mut self, context: &mut Context) {
        if self.session.is_waiting() {
            self.session.resume(context);
        }
    }

    /// Writes and takes as much as there is; returns whether the response is complete.
    fn advance(
        &mut self,
        content: &[u8],
        context: &mut Context,
        mut take: impl FnMut(&[u8]),
    ) -> bool {
        loop {
            let piece = &content[self.written..content.len().min(self.written + INPUT)];
            let mut has_moved = false;
            if !piece.is_empty() {
                let written = self.session.write(context, &self.job, piece);
                self.written += written;
                has_moved = written > 0;
                if self.written == content.len() {
                    self.session.finish(context, &self.job);
                }
            }
            while let Some(block) = self.session.next_block() {
                take(&block);
                has_moved = true;
            }
            if self.session.is_complete() {
                return true;
            }
            if !has_moved {
                return false;
            }
        }
    }
}

/// A chunk that is handed over, and its memory, which is used again.
#[derive(Default)]
struct Chunk {
    ticket: Option<Ticket>,
    content: Arc<Vec<u8>>,
}

impl Chunk {
    fn submit(&mut self, method: Method, content: &[u8], job: &Job) -> Result<(), Error> {
        let own = Arc::make_mut(&mut self.content);
        own.clear();
        own.extend_from_slice(content);
        let coding = method.codec().wire_coding();
        let operation = Operation::Compress(Compression {
            coding: coding.ok_or_else(|| refused(Reason::NotOffered))?,
            level: method.level(),
            is_last: true,
            content: self.content.clone(),
        });
        let ticket = submit(operation, job).map_err(refused)?;
        self.ticket = Some(ticket);
        Ok(())
    }

    /// Takes the answer, if one has been asked for. Returns whether it was.
    fn take(&mut self) -> Result<bool, Error> {
        match self.ticket.take().map(|ticket| ticket.take()) {
            None => Ok(false),
            Some(Some(Answer::Computed(_))) => Ok(true),
            Some(Some(Answer::Software(reason))) => Err(refused(reason)),
            Some(None) => unreachable!("a job is notified when its answer is there"),
        }
    }
}

fn refused(reason: Reason) -> Error {
    Error::Unsupported(format!("the engine has not compressed a chunk: {reason:?}"))
}

/// The response as the job that is notified of answers.
struct Job(JobToken);

impl Pause for Job {
    fn admits(&self) -> Result<(), Reason> {
        Ok(())
    }

    fn notification(&self) -> Notification {
        Notification::ReadyQueue(self.0)
    }

    fn pause(&self) -> bool {
        false
    }
}

/// Waits for answers; returns whose they are.
fn wait() -> Result<Vec<JobToken>, Error> {
    let waited = instance::with(|instance| {
        instance.poll(Moment::Idle);
        while !instance.has_ready() {
            if instance.arm() {
                let descriptor = instance.descriptor();
                let mut watched: Vec<PollFd<'_>> = descriptor
                    .iter()
                    .map(|descriptor| PollFd::new(descriptor, PollFlags::IN))
                    .collect();
                let woken = poll(&mut watched, Some(&LATE));
                if woken.is_ok_and(|woken| woken == 0) {
                    return None;
                }
            }
            instance.poll(Moment::Idle);
        }
        let mut ready = Vec::new();
        while let Some(job) = instance.next_ready() {
            // Several of its chunks may have been answered.
            if !ready.contains(&job) {
                ready.push(job);
            }
        }
        Some(ready)
    });
    waited
        .flatten()
        .ok_or_else(|| Error::Unsupported("the engine answers nothing".to_owned()))
}
