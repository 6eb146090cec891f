//! Owns the thread that runs the steps: schedule -> submit -> wait -> commit, until all handles are gone or it is told
//! to stop. A failing step ends its requests; a panic ends all of them and the engine.

use crate::event::FinishReason;
use crate::pager::Pager;
use crate::running::Submission;
use crate::sampler::Sampler;
use crate::scheduler::Scheduler;
use crate::stats::SharedStats;
use mettle_plan::{BlockId, Executable, OutputKind, StepInput};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::mpsc::Receiver;

pub(crate) enum Command {
    Submit(Box<Submission>),
    Shutdown,
}

pub(crate) struct Worker {
    pub commands: Receiver<Command>,
    pub executable: Box<dyn Executable>,
    pub scheduler: Scheduler,
    pub pager: Pager,
    pub sampler: Sampler,
    pub stats: Arc<SharedStats>,
    pub alive: Arc<AtomicBool>,
    pub step: StepInput,
    pub copies: Vec<(BlockId, BlockId)>,
}

impl Worker {
    /// The body of the thread.
    pub fn run(mut self) {
        let outcome = catch_unwind(AssertUnwindSafe(|| self.serve()));
        self.alive.store(false, SeqCst);
        let reason = match outcome {
            Ok(()) => FinishReason::Abort,
            Err(panic) => {
                let text = panic
                    .downcast_ref::<&str>()
                    .map(|text| (*text).to_owned())
                    .or_else(|| panic.downcast_ref::<String>().cloned())
                    .unwrap_or_else(|| "unknown panic".to_owned());
                FinishReason::Error(format!("internal error: {text}"))
            }
        };
        while let Ok(command) = self.commands.try_recv() {
            self.take(command);
        }
        // The pager may be what panicked. Whatever is left over ends when its channel is dropped with the worker.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            self.scheduler.end_all(&mut self.pager, &reason);
        }));
        self.stats.publish(&self.pager);
    }

    fn serve(&mut self) {
        self.step.output = OutputKind::Logits;
        self.stats.publish(&self.pager);
        loop {
            if self.scheduler.is_idle() {
                // Nothing to do: sleep until a request comes, or every handle is gone.
                let Ok(command) = self.commands.recv() else {
                    return;
                };
                if !self.take(command) {
                    return;
                }
            }
            while let Ok(command) = self.commands.try_recv() {
                if !self.take(command) {
                    return;
                }
            }
            let (pager, step) = (&mut self.pager, &mut self.step);
            self.scheduler.schedule(pager, step, &mut self.copies);
            if self.step.tokens.is_empty() {
                let is_idle = self.scheduler.is_idle();
                assert!(is_idle, "requests are left and none can go on");
            } else {
                self.stats.steps.fetch_add(1, Relaxed);
                if let Err(message) = self.execute() {
                    self.scheduler.fail_step(&mut self.pager, &message);
                }
            }
            self.stats.publish(&self.pager);
        }
    }

    /// False where the engine is to stop.
    fn take(&mut self, command: Command) -> bool {
        match command {
            Command::Submit(submission) => self.scheduler.add(*submission),
            Command::Shutdown => return false,
        }
        true
    }

    fn execute(&mut self) -> Result<(), String> {
        if !self.copies.is_empty() {
            let copied = self.executable.copy_pages(&self.copies);
            copied.map_err(|e| e.to_string())?;
        }
        let ticket = self
            .executable
            .submit(&self.step)
            .map_err(|e| e.to_string())?;
        let output = self.executable.wait(ticket).map_err(|e| e.to_string())?;
        self.scheduler
            .commit(&output, &mut self.pager, &mut self.sampler)
            .map_err(|e| e.to_string())
    }
}
