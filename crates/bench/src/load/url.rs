//! Owns the address of a server: host, port, and the path before all others.

use crate::error::BenchError;
use hyper::Uri;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseUrl {
    pub host: String,
    pub port: u16,
    /// Without a slash at its end; empty for most servers.
    pub path: String,
}

impl BaseUrl {
    /// `http://host[:port][/path]`. A `/v1` at the end, as OpenAI's clients want it, is left out.
    pub fn parse(text: &str) -> Result<BaseUrl, BenchError> {
        let bad = |why| BenchError::BadUrl {
            url: text.to_owned(),
            why,
        };
        let uri: Uri = text
            .parse()
            .map_err(|_| bad("it must be of the form http://host:port"))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => return Err(bad("only http:// is spoken here, not https://")),
            _ => return Err(bad("it must start with http://")),
        }
        let host = uri.host().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| bad("it names no host"))?;
        if uri.query().is_some() {
            return Err(bad("it must not hold a query"));
        }
        let path = uri.path().trim_end_matches('/');
        Ok(BaseUrl {
            // Brackets belong to the address as it is written, not to the host.
            host: host
                .trim_start_matches('[')
                .trim_end_matches(']')
                .to_owned(),
            port: uri.port_u16().unwrap_or(80),
            path: path.strip_suffix("/v1").unwrap_or(path).to_owned(),
        })
    }

    /// For the Host header.
    pub fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

impl std::fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "http://{}{}", self.authority(), self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_apart() {
        let parse = |text| BaseUrl::parse(text).map(|url| (url.to_string(), url.port));
        for (text, whole, port) in [
            ("http://127.0.0.1:8000", "http://127.0.0.1:8000", 8000),
            ("http://localhost/", "http://localhost:80", 80),
            ("http://host:1/v1", "http://host:1", 1),
            ("http://host:1/proxy/v1/", "http://host:1/proxy", 1),
            ("http://[::1]:9", "http://[::1]:9", 9),
        ] {
            assert_eq!(parse(text).unwrap(), (whole.to_owned(), port));
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_reason() {
        for (text, why) in [
            ("https://host", "not https"),
            ("host:8000", "http://"),
            ("127.0.0.1", "http://"),
            ("", "http://"),
            ("http://", "http://"),
            ("ftp://host", "start with http://"),
            ("http://host/?a=b", "query"),
        ] {
            let error = BaseUrl::parse(text).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
