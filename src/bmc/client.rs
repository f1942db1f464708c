//! HTTP as Redfish uses it: JSON, one host, credentials for nobody else.

use std::time::{Duration, Instant};

use serde_json::Value;
use thiserror::Error;
use ureq::http::{Method, Request, Response, StatusCode};
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{Connector, TcpConnector};
use ureq::{Agent, AsSendBody, Body};

use super::Machine;
use super::tls::{Tls, certificates};
use crate::secret::redacted;
use crate::text::one_line;

/// The most bytes of an answer.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// The most redirects of one request.
const MAX_REDIRECTS: usize = 5;

/// How long one request may take: a BMC is slow, and a silent one must be told from a slow one.
const REQUEST_TIME: Duration = Duration::from_secs(15);

/// What the last request may take, though the step's time is over: a session has to be ended.
const LEAST_TIME: Duration = Duration::from_millis(300);

/// A BMC's HTTP service.
#[derive(Debug)]
pub struct Client {
    agent: Agent,
    /// Scheme and host, without a path.
    base: String,
    basic: String,
    /// The token of a session, where Basic authentication isn't taken.
    session: Option<Session>,
    password: String,
    /// What is never shown.
    secrets: Vec<String>,
    until: Instant,
}

#[derive(Debug)]
struct Session {
    token: String,
    location: String,
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// 2xx.
    pub status: u16,
    /// Where a task is followed.
    pub location: Option<String>,
    /// The version of what was read.
    pub etag: Option<String>,
    /// Null if there is none.
    pub body: Value,
}

/// Why a request has no answer that helps.
#[derive(Debug, Error)]
pub enum HttpFault {
    /// The address is none.
    #[error("the BMC's address \"{0}\" is no http:// or https:// URL of a host")]
    Address(String),
    /// The authorities can't be read.
    #[error("there is no certificate in PEM in it, or a damaged one")]
    Authorities,
    /// Nobody is trusted.
    #[error("no authority to verify certificates with: {0}: set ca_file")]
    Tls(#[from] rustls::Error),
    /// No answer.
    #[error("{method} {path}: {reason}")]
    Transport {
        /// GET, POST, ...
        method: Method,
        /// What was asked.
        path: String,
        /// Why.
        reason: String,
    },
    /// A redirect that leads away from the BMC.
    #[error("{method} {path}: the BMC sends the request away, to {to}: not followed")]
    Redirect {
        /// GET, POST, ...
        method: Method,
        /// What was asked.
        path: String,
        /// Where to.
        to: String,
    },
    /// The BMC said no.
    #[error("{method} {path}: {status}{message}")]
    Status {
        /// GET, POST, ...
        method: Method,
        /// What was asked.
        path: String,
        /// What it said.
        status: StatusCode,
        /// And why, if it said that.
        message: String,
    },
    /// Not JSON, or too much.
    #[error("{method} {path}: {status}, and the answer can't be read: {reason}")]
    Body {
        /// GET, POST, ...
        method: Method,
        /// What was asked.
        path: String,
        /// What it said.
        status: StatusCode,
        /// What is wrong.
        reason: String,
    },
}

impl HttpFault {
    /// Whether the BMC said that it doesn't let us in.
    #[must_use]
    pub fn is_unauthorized(&self) -> bool {
        self.has_status(&[StatusCode::UNAUTHORIZED])
    }

    /// Whether the BMC said that there is no such thing.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.has_status(&[
            StatusCode::NOT_FOUND,
            StatusCode::METHOD_NOT_ALLOWED,
            StatusCode::NOT_IMPLEMENTED,
        ])
    }

    fn has_status(&self, wanted: &[StatusCode]) -> bool {
        matches!(self, Self::Status { status, .. } if wanted.contains(status))
    }
}

impl Client {
    /// Nothing is asked yet; whatever is has to be over by `until`.
    ///
    /// # Errors
    /// When the address or the authorities are none.
    pub fn new(machine: &Machine, until: Instant) -> Result<Self, HttpFault> {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(None)
            .build();
        let connector = TcpConnector::default().chain(Tls::new(&machine.trust)?);
        Ok(Self {
            agent: Agent::with_parts(config, connector, DefaultResolver::default()),
            base: check_address(&machine.address)?,
            basic: basic(&machine.username, &machine.password),
            session: None,
            password: machine.password.clone(),
            secrets: secrets(machine),
            until,
        })
    }

    /// Reads what is at `path`.
    ///
    /// # Errors
    /// Why there is nothing.
    pub fn get(&mut self, path: &str) -> Result<Answer, HttpFault> {
        self.request(&Method::GET, path, None, None)
    }

    /// Sends `body` there. Never sent twice: a redirect of it is a fault.
    ///
    /// # Errors
    /// When the BMC says no.
    pub fn post(&mut self, path: &str, body: &Value) -> Result<Answer, HttpFault> {
        self.request(&Method::POST, path, Some(body), None)
    }

    /// Changes what is at `path`, if it is still what `etag` names.
    ///
    /// # Errors
    /// When the BMC says no.
    pub fn patch(
        &mut self,
        path: &str,
        body: &Value,
        etag: Option<&str>,
    ) -> Result<Answer, HttpFault> {
        self.request(&Method::PATCH, path, Some(body), etag)
    }

    /// Opens a session, where the service wants one instead of Basic authentication.
    ///
    /// # Errors
    /// When it gives none.
    pub fn log_in(&mut self, sessions: &str, username: &str) -> Result<(), HttpFault> {
        let body = serde_json::json!({"UserName": username, "Password": self.password});
        let (response, path) = self.send(&Method::POST, sessions, Some(&body), None)?;
        let header = |name: &str| {
            let value = response.headers().get(name)?.to_str().ok()?;
            Some(value.to_owned())
        };
        let session = header("X-Auth-Token").zip(header("Location"));
        let answer = self.answer(&Method::POST, &path, response)?;
        let (token, location) = session.ok_or_else(|| HttpFault::Body {
            method: Method::POST,
            path,
            status: StatusCode::from_u16(answer.status).unwrap_or_default(),
            reason: "it has no X-Auth-Token".to_owned(),
        })?;
        self.session = Some(Session { token, location });
        Ok(())
    }

    /// Ends the session, if there is one: a BMC has few of them.
    pub fn log_out(&mut self) {
        if let Some(session) = &self.session {
            let location = session.location.clone();
            let _ = self.request(&Method::DELETE, &location, None, None);
            self.session = None;
        }
    }

    fn request(
        &mut self,
        method: &Method,
        path: &str,
        body: Option<&Value>,
        etag: Option<&str>,
    ) -> Result<Answer, HttpFault> {
        let (response, path) = self.send(method, path, body, etag)?;
        self.answer(method, &path, response)
    }

    /// Sends, and follows redirects of GET within the host; the path that answered in the end.
    fn send(
        &self,
        method: &Method,
        path: &str,
        body: Option<&Value>,
        etag: Option<&str>,
    ) -> Result<(Response<Body>, String), HttpFault> {
        let mut path = self.path_of(path).ok_or_else(|| HttpFault::Redirect {
            method: method.clone(),
            path: path.to_owned(),
            to: one_line(path),
        })?;
        for _ in 0..=MAX_REDIRECTS {
            let response = self.send_once(method, &path, body, etag)?;
            if !response.status().is_redirection() {
                return Ok((response, path));
            }
            let to = response
                .headers()
                .get("Location")
                .and_then(|to| to.to_str().ok())
                .unwrap_or_default();
            let next = self.path_of(to).filter(|_| *method == Method::GET);
            path = next.ok_or_else(|| HttpFault::Redirect {
                method: method.clone(),
                path: path.clone(),
                to: one_line(to),
            })?;
        }
        Err(HttpFault::Transport {
            method: method.clone(),
            path,
            reason: "redirected again and again".to_owned(),
        })
    }

    fn send_once(
        &self,
        method: &Method,
        path: &str,
        body: Option<&Value>,
        etag: Option<&str>,
    ) -> Result<Response<Body>, HttpFault> {
        let fault = |reason: String| HttpFault::Transport {
            method: method.clone(),
            path: path.to_owned(),
            reason: self.without_password(&reason),
        };
        let mut request = Request::builder()
            .method(method.clone())
            .uri(format!("{}{path}", self.base))
            .header("Accept", "application/json")
            .header("OData-Version", "4.0");
        request = match &self.session {
            Some(session) => request.header("X-Auth-Token", &session.token),
            None => request.header("Authorization", &self.basic),
        };
        if let Some(etag) = etag {
            request = request.header("If-Match", etag);
        }
        let left = self.until.saturating_duration_since(Instant::now());
        let time = left.clamp(LEAST_TIME, REQUEST_TIME);
        let sent = match body {
            Some(body) => {
                let request = request.header("Content-Type", "application/json");
                self.run(request.body(body.to_string()), time)
            }
            None => self.run(request.body(()), time),
        };
        sent.map_err(|error| match error {
            ureq::Error::Timeout(_) => {
                fault(format!("no answer within {:.1} s", time.as_secs_f64()))
            }
            ureq::Error::Io(error) => fault(error.to_string()),
            error => fault(error.to_string()),
        })
    }

    fn run<B: AsSendBody>(
        &self,
        request: Result<Request<B>, ureq::http::Error>,
        time: Duration,
    ) -> Result<Response<Body>, ureq::Error> {
        let request = self.agent.configure_request(request?);
        self.agent.run(request.timeout_global(Some(time)).build())
    }

    /// The path and query of a link, if it stays on this host.
    fn path_of(&self, link: &str) -> Option<String> {
        let path = match link.strip_prefix(&self.base) {
            Some(path) => path,
            None => link,
        };
        let is_path = path.starts_with('/') && !path.starts_with("//");
        let is_plain = !path.contains(|c: char| c.is_whitespace() || c.is_control() || c == '\\');
        (is_path && is_plain).then(|| path.split('#').next().unwrap_or(path).to_owned())
    }

    fn answer(
        &self,
        method: &Method,
        path: &str,
        mut response: Response<Body>,
    ) -> Result<Answer, HttpFault> {
        let status = response.status();
        let header = |name: &str| {
            let value = response.headers().get(name)?.to_str().ok()?;
            Some(value.to_owned())
        };
        let (location, etag) = (header("Location"), header("ETag"));
        let text = response
            .body_mut()
            .with_config()
            .limit(MAX_BYTES)
            .read_to_string();
        let body = match &text {
            Ok(text) if text.trim().is_empty() => Ok(Value::Null),
            Ok(text) => serde_json::from_str(text).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if !status.is_success() {
            let message = body.as_ref().map(explanation).unwrap_or_default();
            let message = if message.is_empty() {
                message
            } else {
                format!(": {message}")
            };
            return Err(HttpFault::Status {
                method: method.clone(),
                path: path.to_owned(),
                status,
                message: one_line(&self.without_password(&message)),
            });
        }
        let body = body.map_err(|reason| HttpFault::Body {
            method: method.clone(),
            path: path.to_owned(),
            status,
            reason: self.without_password(&reason),
        })?;
        Ok(Answer {
            status: status.as_u16(),
            location,
            etag,
            body,
        })
    }

    fn without_password(&self, text: &str) -> String {
        redacted(text, &self.secrets)
    }
}

/// What the BMC says of an error, in the words meant for people.
pub fn explanation(body: &Value) -> String {
    let error = &body["error"];
    let extended = error["@Message.ExtendedInfo"]
        .as_array()
        .or_else(|| body["@Message.ExtendedInfo"].as_array());
    let messages: Vec<&str> = extended
        .into_iter()
        .flatten()
        .filter_map(|info| info["Message"].as_str())
        .filter(|message| !message.is_empty())
        .collect();
    if messages.is_empty() {
        error["message"].as_str().unwrap_or_default().to_owned()
    } else {
        messages.join(" ")
    }
}

/// Scheme and host of a BMC's address, if it is one.
///
/// # Errors
/// When it isn't.
pub fn check_address(address: &str) -> Result<String, HttpFault> {
    let bad = || HttpFault::Address(one_line(address));
    let (scheme, rest) = address.split_once("://").ok_or_else(bad)?;
    let host = rest.strip_suffix('/').unwrap_or(rest);
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:[]".contains(&byte);
    let is_host = host.bytes().all(is_plain)
        && host.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '[');
    if !is_host || !["http", "https"].contains(&scheme) {
        return Err(bad());
    }
    Ok(format!("{scheme}://{host}"))
}

/// Whether there are certificates in a text in PEM.
///
/// # Errors
/// When there is none, or one is damaged.
pub fn check_authorities(pem: &str) -> Result<(), HttpFault> {
    if certificates(pem).is_empty() {
        return Err(HttpFault::Authorities);
    }
    Ok(())
}

/// The password; with the name before it, it is what basic authentication encodes.
fn secrets(machine: &Machine) -> Vec<String> {
    let (username, password) = (&machine.username, &machine.password);
    if password.is_empty() {
        return Vec::new();
    }
    vec![password.clone(), format!("{username}:{password}")]
}

fn basic(username: &str, password: &str) -> String {
    use base64::Engine;
    let both = format!("{username}:{password}");
    format!(
        "Basic {}",
        base64::engine::general_purpose::STANDARD.encode(both)
    )
}
