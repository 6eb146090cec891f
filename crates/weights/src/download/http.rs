//! Owns requests over HTTP: a small JSON document, or a large file that may need several attempts.

use super::part_file::{Expected, PartFile};
use super::progress::{Options, Progress};
use crate::error::{Result, WeightsError};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;
use ureq::http::{Response, StatusCode};

/// Short, so that a machine without a route to the hub goes on to the next source soon.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const READ_TIMEOUT: Duration = Duration::from_secs(15);
const LARGEST_JSON: u64 = 64 << 20;
/// Attempts in a row that brought not one byte.
const FRUITLESS_ATTEMPTS: u32 = 3;
const RETRY_PAUSE: Duration = Duration::from_secs(1);

pub struct Http<'a> {
    agent: ureq::Agent,
    options: &'a Options,
}

impl Http<'_> {
    pub fn new(options: &Options) -> Http<'_> {
        let config = ureq::Agent::config_builder()
            .timeout_resolve(Some(CONNECT_TIMEOUT))
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_recv_response(Some(READ_TIMEOUT))
            .timeout_per_read(Some(READ_TIMEOUT))
            .http_status_as_error(false)
            .user_agent(concat!("mettle/", env!("CARGO_PKG_VERSION")))
            .build();
        Http {
            agent: config.into(),
            options,
        }
    }

    pub fn json<T: serde::de::DeserializeOwned>(&self, url: &str) -> Result<T> {
        let response = self.get(url, 0)?;
        check_status(url, response.status())?;
        let body = response
            .into_body()
            .into_with_config()
            .limit(LARGEST_JSON)
            .read_to_vec()
            .map_err(|e| network(url, e))?;
        serde_json::from_slice(&body)
            .map_err(|e| network(url, format!("not the JSON expected: {e}")))
    }

    /// Fetches `url` into `place`. A cut connection is taken up again where it broke; so is what an earlier run
    /// left, provided that a checksum can tell whether the pieces fit.
    pub fn file(
        &self,
        url: &str,
        place: &Path,
        expected: &Expected,
        progress: &mut dyn Progress,
    ) -> Result<PathBuf> {
        let mut part = match expected.sha256 {
            Some(_) => PartFile::resume(place)?,
            None => PartFile::create(place)?,
        };
        let inherited = part.written() > 0;
        self.fetch(url, &mut part, expected, progress)?;
        match part.finish(expected) {
            // The pieces did not fit: perhaps the file on the hub changed since. Once more from nothing.
            Err(WeightsError::WrongChecksum { .. } | WeightsError::WrongSize { .. })
                if inherited =>
            {
                let mut part = PartFile::create(place)?;
                self.fetch(url, &mut part, expected, progress)?;
                part.finish(expected)
            }
            finished => finished,
        }
    }

    fn fetch(
        &self,
        url: &str,
        part: &mut PartFile,
        expected: &Expected,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        let mut fruitless = 0;
        let mut reached = false;
        while expected.bytes.is_none_or(|bytes| part.written() < bytes) {
            let before = part.written();
            match self.attempt(url, part, expected, progress) {
                Ok(()) => break,
                Err(error @ WeightsError::Network { .. }) => {
                    let gained = part.written() > before;
                    reached |= gained;
                    fruitless = if gained { 0 } else { fruitless + 1 };
                    // Where nothing ever came the host cannot be reached, and asking again would only take time.
                    if !reached || fruitless >= FRUITLESS_ATTEMPTS {
                        return Err(error);
                    }
                    std::thread::sleep(RETRY_PAUSE * fruitless);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// One request, for what `part` lacks. Ends well only when the server has sent all it announced.
    fn attempt(
        &self,
        url: &str,
        part: &mut PartFile,
        expected: &Expected,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        let mut response = self.get(url, part.written())?;
        if response.status() == StatusCode::RANGE_NOT_SATISFIABLE && part.written() > 0 {
            part.restart()?;
            response = self.get(url, 0)?;
        }
        check_status(url, response.status())?;
        if part.written() > 0 && !continues_at(&response, part.written()) {
            part.restart()?;
        }
        progress.advance(part.written());
        let mut body = response.into_body().into_reader();
        let mut buffer = vec![0; 1 << 17];
        loop {
            self.options.check_cancel()?;
            let read = body.read(&mut buffer).map_err(|e| network(url, e))?;
            if read == 0 {
                let complete = expected.bytes.is_none_or(|bytes| part.written() >= bytes);
                return match complete {
                    true => Ok(()),
                    false => Err(network(url, "the connection was closed early")),
                };
            }
            part.write(&buffer[..read])?;
            if expected.bytes.is_some_and(|bytes| part.written() > bytes) {
                return Ok(());
            }
            progress.advance(part.written());
        }
    }

    fn get(&self, url: &str, from: u64) -> Result<Response<ureq::Body>> {
        self.options.check_cancel()?;
        let mut request = self.agent.get(url);
        if let Some(token) = &self.options.hub_token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        if from > 0 {
            request = request.header("Range", format!("bytes={from}-"));
        }
        request.call().map_err(|e| network(url, e))
    }
}

/// Whether the server sends the rest from byte `from` on, and not the whole file or some other range.
fn continues_at(response: &Response<ureq::Body>, from: u64) -> bool {
    let range = response.headers().get("Content-Range");
    response.status() == StatusCode::PARTIAL_CONTENT
        && range
            .and_then(|value| value.to_str().ok())
            .is_some_and(|value| value.starts_with(&format!("bytes {from}-")))
}

fn check_status(url: &str, status: StatusCode) -> Result<()> {
    let hint = match status.as_u16() {
        200 | 206 => return Ok(()),
        401 | 403 => ": the model needs an account that may read it (set a hub token)",
        404 => ": there is no such model or file",
        429 => ": too many requests, try again later",
        _ => "",
    };
    Err(WeightsError::HttpStatus {
        url: url.to_owned(),
        status: status.as_u16(),
        hint,
    })
}

fn network(url: &str, reason: impl std::fmt::Display) -> WeightsError {
    WeightsError::Network {
        url: url.to_owned(),
        reason: reason.to_string(),
    }
}
