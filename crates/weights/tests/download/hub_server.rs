//! Owns a small hub: one repository `owner/tiny` on 127.0.0.1, with faults to order.

use sha2::{Digest, Sha256};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

const COMMIT: &str = "0123456789abcdef";

#[derive(Clone, Default)]
pub struct Repository {
    files: Vec<File>,
}

#[derive(Clone)]
struct File {
    name: String,
    contents: Vec<u8>,
    large: bool,
    fault: Fault,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    None,
    /// Every answer ends after this many bytes of its body.
    CutAfter(usize),
    /// The whole file comes whatever range was asked for.
    IgnoresRanges,
    /// Every answer ends after this many bytes, and ranges are ignored: it can never be had.
    Hopeless(usize),
    WrongContents,
    Status(u16),
}

impl Repository {
    /// A file that the hub keeps no checksum for.
    pub fn small(mut self, name: &str, contents: &[u8]) -> Repository {
        self.files.push(File {
            name: name.to_owned(),
            contents: contents.to_vec(),
            large: false,
            fault: Fault::None,
        });
        self
    }

    pub fn large(mut self, name: &str, contents: &[u8], fault: Fault) -> Repository {
        self.files.push(File {
            name: name.to_owned(),
            contents: contents.to_vec(),
            large: true,
            fault,
        });
        self
    }

    /// Serves until the test's process ends.
    pub fn serve(self) -> HubServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = requests.clone();
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                // A client that leaves early is part of the tests.
                let _ = self.answer(connection.unwrap(), &log);
            }
        });
        HubServer { endpoint, requests }
    }

    fn answer(&self, mut stream: TcpStream, log: &Mutex<Vec<String>>) -> std::io::Result<()> {
        let mut lines = BufReader::new(stream.try_clone()?).lines();
        let request = lines.next().unwrap_or_else(|| Ok(String::new()))?;
        let path = request.split(' ').nth(1).unwrap_or("").to_owned();
        let mut from = None;
        for line in lines {
            let line = line?.to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(range) = line.strip_prefix("range: bytes=") {
                from = range.trim_end_matches('-').parse::<usize>().ok();
            }
        }
        log.lock().unwrap().push(match from {
            Some(from) => format!("{path} from {from}"),
            None => path.clone(),
        });
        if path == "/api/models/owner/tiny?blobs=true" {
            return send(&mut stream, 200, "", self.listing().as_bytes(), usize::MAX);
        }
        let file = path
            .strip_prefix("/owner/tiny/resolve/")
            .and_then(|rest| rest.split_once('/'))
            .filter(|(commit, _)| *commit == COMMIT)
            .and_then(|(_, name)| self.files.iter().find(|f| f.name == name));
        match file {
            Some(file) => file.answer(&mut stream, from),
            None => send(&mut stream, 404, "", b"no such thing", usize::MAX),
        }
    }

    fn listing(&self) -> String {
        let siblings: Vec<String> = self.files.iter().map(File::listed).collect();
        format!(
            r#"{{"sha":"{COMMIT}","siblings":[{}]}}"#,
            siblings.join(",")
        )
    }
}

impl File {
    fn listed(&self) -> String {
        let (name, size) = (&self.name, self.contents.len());
        if !self.large {
            return format!(r#"{{"rfilename":"{name}","size":{size}}}"#);
        }
        let digest = Sha256::digest(&self.contents);
        let sha256: String = digest.iter().map(|b| format!("{b:02x}")).collect();
        format!(
            r#"{{"rfilename":"{name}","size":{size},"lfs":{{"sha256":"{sha256}","size":{size}}}}}"#
        )
    }

    fn answer(&self, stream: &mut TcpStream, from: Option<usize>) -> std::io::Result<()> {
        let mut contents = self.contents.clone();
        let (mut from, mut limit) = (from, usize::MAX);
        match self.fault {
            Fault::None => (),
            Fault::CutAfter(bytes) => limit = bytes,
            Fault::IgnoresRanges => from = None,
            Fault::Hopeless(bytes) => (from, limit) = (None, bytes),
            Fault::WrongContents => contents[0] ^= 1,
            Fault::Status(status) => return send(stream, status, "", b"no", usize::MAX),
        }
        match from {
            Some(from) if from >= contents.len() => send(stream, 416, "", b"", usize::MAX),
            Some(from) => {
                let (last, all) = (contents.len() - 1, contents.len());
                let range = format!("Content-Range: bytes {from}-{last}/{all}\r\n");
                send(stream, 206, &range, &contents[from..], limit)
            }
            None => send(stream, 200, "", &contents, limit),
        }
    }
}

fn send(
    stream: &mut TcpStream,
    status: u16,
    headers: &str,
    body: &[u8],
    limit: usize,
) -> std::io::Result<()> {
    let head = format!(
        "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n{headers}\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(&body[..limit.min(body.len())])
}

pub struct HubServer {
    pub endpoint: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl HubServer {
    /// What was asked for since the last call, without the parts that never differ.
    pub fn requests(&self) -> Vec<String> {
        let taken = std::mem::take(&mut *self.requests.lock().unwrap());
        let prefix = format!("/owner/tiny/resolve/{COMMIT}/");
        taken
            .into_iter()
            .map(|r| {
                r.replace("/api/models/owner/tiny?blobs=true", "list")
                    .replace(&prefix, "")
            })
            .collect()
    }
}
