//! Owns the open connections: how many there may be, and who leaves when another one comes.
//!
//! At the limit the client that has been waited for longest gives way, so that no number of silent ones keeps a client
//! who asks from being answered. Connections that are being answered stay.

use crate::activity::Activity;
use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Notify;
use tokio::task::{Id, JoinSet};

struct Open {
    activity: Arc<Activity>,
    leave: Arc<Notify>,
}

/// Cuts all connections off when it is dropped.
pub struct Connections {
    tasks: JoinSet<()>,
    /// Those that were not told to leave.
    open: HashMap<Id, Open>,
    limit: usize,
    start: Instant,
    answered: Arc<Notify>,
}

impl Connections {
    pub fn new(limit: usize) -> Connections {
        Connections {
            tasks: JoinSet::new(),
            open: HashMap::new(),
            limit,
            start: Instant::now(),
            answered: Arc::new(Notify::new()),
        }
    }

    /// Another one may come: there is a place, or one who gives way. Those who were told to leave and have not yet may be
    /// as many again.
    pub fn has_room(&self) -> bool {
        self.open.len() < self.limit
            || (self.tasks.len() < 2 * self.limit && self.waited_for_longest().is_some())
    }

    /// `converse` gets what notes the connection's stages and what tells it to leave.
    pub fn add<F>(&mut self, converse: impl FnOnce(Arc<Activity>, Arc<Notify>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        if self.open.len() >= self.limit
            && let Some(id) = self.waited_for_longest()
            && let Some(gone) = self.open.remove(&id)
        {
            gone.leave.notify_one();
        }
        let activity = Arc::new(Activity::new(self.start, self.answered.clone()));
        let leave = Arc::new(Notify::new());
        let task = self.tasks.spawn(converse(activity.clone(), leave.clone()));
        self.open.insert(task.id(), Open { activity, leave });
    }

    fn waited_for_longest(&self) -> Option<Id> {
        let since = |open: &Open| open.activity.waited_for_since();
        let waited_for = self
            .open
            .iter()
            .filter_map(|(id, open)| Some((since(open)?, *id)));
        waited_for.min_by_key(|(since, _)| *since).map(|(_, id)| id)
    }

    /// Waits until something has changed that may make room: a connection ended, or an answer did.
    pub async fn changed(&mut self) {
        tokio::select! {
            Some(ended) = self.tasks.join_next_with_id() => {
                let id = ended.map_or_else(|error| error.id(), |(id, ())| id);
                self.open.remove(&id);
            }
            () = self.answered.notified() => {}
        }
    }

    /// Waits until all have ended.
    pub async fn all_ended(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}
