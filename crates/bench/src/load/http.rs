//! Owns one HTTP request: a connection of its own, plain HTTP/1.1, and a body that arrives piece by piece.

use super::outcome::{Failure, FailureKind};
use super::url::BaseUrl;
use crate::error::BenchError;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

/// A server that does not take a connection within this time is not there.
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// Of an error's body, what a message shows.
const SHOWN: usize = 300;

/// Where requests go. The name is looked up once, so that no request waits for it.
#[derive(Clone, Debug)]
pub struct Client {
    pub url: BaseUrl,
    address: SocketAddr,
    key: Option<String>,
}

impl Client {
    pub async fn new(url: BaseUrl, key: Option<String>) -> Result<Client, BenchError> {
        let unreachable = |why: String| BenchError::Unreachable {
            url: url.to_string(),
            why,
        };
        let found = lookup_host((url.host.as_str(), url.port)).await;
        let addresses = found.map_err(|error| unreachable(error.to_string()))?;
        let addresses: Vec<SocketAddr> = addresses.collect();
        let mut why = "its name has no address".to_owned();
        for address in addresses {
            match timeout(CONNECT_TIME, TcpStream::connect(address)).await {
                Ok(Ok(_)) => return Ok(Client { url, address, key }),
                Ok(Err(error)) => why = error.to_string(),
                Err(_) => why = format!("no connection within {} s", CONNECT_TIME.as_secs()),
            }
        }
        Err(unreachable(why))
    }

    /// Sends a request and waits for the head of its answer, whatever its status.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<Response<Incoming>, Failure> {
        let connect = |why: String| Failure::new(FailureKind::Connect, why);
        let stream = match timeout(CONNECT_TIME, TcpStream::connect(self.address)).await {
            Ok(stream) => stream.map_err(|error| connect(error.to_string()))?,
            Err(_) => return Err(connect("no connection in time".to_owned())),
        };
        // Small requests leave at once; who cannot have that still has a connection.
        let _ = stream.set_nodelay(true);
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| connect(error.to_string()))?;
        // It ends when the answer was read or dropped; its errors reach whoever reads the answer.
        tokio::spawn(connection);
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.url.path))
            .header(header::HOST, self.url.authority())
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(key) = &self.key {
            request = request.header(header::AUTHORIZATION, format!("Bearer {key}"));
        }
        let request = request
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| connect(error.to_string()))?;
        sender.send_request(request).await.map_err(disconnected)
    }

    /// The same, and reads the whole body.
    pub async fn fetch(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<(StatusCode, Bytes), Failure> {
        let response = self.send(method, path, body).await?;
        let status = response.status();
        let body = response.into_body().collect().await.map_err(disconnected)?;
        Ok((status, body.to_bytes()))
    }
}

pub fn disconnected(error: hyper::Error) -> Failure {
    Failure::new(FailureKind::Disconnected, error.to_string())
}

/// What a refusal says: the message of OpenAI's error object, or the beginning of whatever came.
pub fn refusal(status: StatusCode, body: &[u8]) -> Failure {
    let kind = match status {
        StatusCode::TOO_MANY_REQUESTS => FailureKind::Busy,
        _ => FailureKind::Status,
    };
    let value: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    let text = value.as_ref().and_then(error_message);
    let text = text.unwrap_or_else(|| String::from_utf8_lossy(body).trim().to_owned());
    let shown: String = text.chars().take(SHOWN).collect();
    Failure::new(kind, format!("{} {shown}", status.as_u16()))
}

/// The message in OpenAI's error object, in whichever place a server puts it.
pub fn error_message(value: &serde_json::Value) -> Option<String> {
    let error = value.get("error").filter(|error| !error.is_null());
    let message = match error {
        Some(error) => error.get("message").or(Some(error)),
        None => value.get("message").or_else(|| value.get("detail")),
    }?;
    Some(match message.as_str() {
        Some(text) => text.to_owned(),
        None => message.to_string(),
    })
}
