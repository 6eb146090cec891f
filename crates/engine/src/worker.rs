//! Owns the thread that runs the steps: schedule -> submit -> wait -> commit, until all handles are gone or it is told
//! to stop. Whatever goes wrong in a step other than with one choice's logits ends all requests and the engine: what the
//! device then holds is unknown.

use crate::event::FinishReason;
use crate::job::Job;
use crate::mail::Mail;
use crate::pager::Pager;
use crate::sampler::Sampler;
use crate::scheduler::Scheduler;
use crate::stats::SharedStats;
use mettle_plan::{BlockId, Executable, StepInput};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// How long the worker waits for a mask before it looks for new requests, where no choice can go on without one.
const MASK_NAP: Duration = Duration::from_millis(5);

pub(crate) enum Command {
    Submit(Mail<Arc<Job>>),
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
            Ok(Ok(())) => FinishReason::Abort,
            Ok(Err(message)) => FinishReason::Error(message),
            Err(panic) => {
                let text = panic
                    .downcast_ref::<&str>()
                    .map(|text| (*text).to_owned())
                    .or_else(|| panic.downcast_ref::<String>().cloned())
                    .unwrap_or_else(|| "unknown panic".to_owned());
                FinishReason::Error(format!("internal error: {text}"))
            }
        };
        // The scheduler or the pager may be what panicked. Whatever is left over ends when its channel is dropped with
        // the worker.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            while let Ok(command) = self.commands.try_recv() {
                self.take(command);
            }
            self.scheduler.end_all(&mut self.pager, &reason);
        }));
        self.stats.publish(&self.pager);
        self.stats.page_map.draw_last(&self.pager);
    }

    /// Until there is nothing to do any more; an error is the device's.
    fn serve(&mut self) -> Result<(), String> {
        loop {
            if self.scheduler.is_idle() {
                self.stats.page_map.draw_last(&self.pager);
                // Nothing to do: sleep until a request comes, or every handle is gone.
                let Ok(command) = self.commands.recv() else {
                    return Ok(());
                };
                if !self.take(command) {
                    return Ok(());
                }
            }
            while let Ok(command) = self.commands.try_recv() {
                if !self.take(command) {
                    return Ok(());
                }
            }
            let (pager, step) = (&mut self.pager, &mut self.step);
            self.scheduler.schedule(pager, step, &mut self.copies);
            if !self.step.tokens.is_empty() {
                self.execute()?;
            } else if !self.scheduler.is_idle() {
                let waits = self.scheduler.wait_for_mask(MASK_NAP);
                assert!(waits, "requests are left and none can go on");
            }
            self.stats.publish(&self.pager);
            self.stats.page_map.draw_if_asked(&self.pager);
        }
    }

    /// False where the engine is to stop.
    fn take(&mut self, command: Command) -> bool {
        match command {
            Command::Submit(mail) => {
                mail.open(|job| self.scheduler.add(job));
                true
            }
            Command::Shutdown => false,
        }
    }

    fn execute(&mut self) -> Result<(), String> {
        for copies in independent_runs(&self.copies) {
            let copied = self.executable.copy_pages(copies);
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

type Copies = [(BlockId, BlockId)];

/// Cuts a list of page copies, meant to run one after another, into runs whose copies may run in any order. A page that a
/// preemption gave back may be written by a later copy and read or written by an earlier one.
fn independent_runs(copies: &Copies) -> impl Iterator<Item = &Copies> {
    let mut rest = copies;
    std::iter::from_fn(move || {
        let depends = |index: &usize| {
            let (source, target) = rest[*index];
            let mut before = rest[..*index].iter();
            before.any(|(s, t)| *t == source || *t == target || *s == target)
        };
        let end = (1..rest.len()).find(depends).unwrap_or(rest.len());
        let (run, left) = rest.split_at(end);
        rest = left;
        (!run.is_empty()).then_some(run)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_that_touch_each_other_are_kept_in_order() {
        let cut = |copies: &[(u32, u32)]| {
            let copies: Vec<_> = copies
                .iter()
                .map(|(s, t)| (BlockId(*s), BlockId(*t)))
                .collect();
            independent_runs(&copies)
                .map(<[_]>::len)
                .collect::<Vec<usize>>()
        };
        assert_eq!(cut(&[]), [0; 0]);
        assert_eq!(cut(&[(0, 1)]), [1]);
        // One source for two targets.
        assert_eq!(cut(&[(0, 1), (0, 2), (3, 4)]), [3]);
        // A target that is read, written again, or whose source is written.
        assert_eq!(cut(&[(0, 1), (1, 2)]), [1, 1]);
        assert_eq!(cut(&[(0, 1), (3, 2), (4, 1), (5, 6)]), [2, 2]);
        assert_eq!(cut(&[(0, 1), (2, 0), (3, 2)]), [1, 1, 1]);
    }
}
