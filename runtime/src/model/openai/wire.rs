//! The bytes of an answer, in time and within bounds, and the events in them.
//!
//! Decision: silence is measured on the wire and not on events: a server that sends comments while it works is alive.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, stream};
use reqwest::Response;
use sse_stream::{Sse, SseByteStream};
use tokio::time::timeout;

use super::failure::{self, Failure};
use crate::model::ModelErrorKind;

/// The most bytes of one answer. The longest replies of today's models are under one megabyte of text; a stream repeats
/// some hundred bytes around each token.
const LONGEST: usize = 256 << 20;
const BOM: &[u8] = b"\xEF\xBB\xBF";

/// Why no more bytes come.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("nothing came in for {} s", .0.as_secs_f64())]
    Idle(Duration),
    #[error("the connection broke: {0}")]
    Broken(String),
    #[error("the answer is over {} MiB", LONGEST >> 20)]
    TooLong,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error {
            Error::Idle(_) => Failure::last(ModelErrorKind::Timeout, error.to_string()),
            Error::Broken(_) => Failure::passing(ModelErrorKind::Interrupted, error.to_string()),
            Error::TooLong => Failure::last(ModelErrorKind::Failed, error.to_string()),
        }
    }
}

/// What ended a stream of events.
pub(super) fn broken(error: sse_stream::Error) -> Failure {
    match error {
        sse_stream::Error::Body(inner) => match inner.downcast::<Error>() {
            Ok(error) => (*error).into(),
            Err(other) => Failure::passing(ModelErrorKind::Interrupted, other.to_string()),
        },
        other => Failure::last(ModelErrorKind::Failed, format!("the stream cannot be read: {other}")),
    }
}

/// An answer that is read.
pub(super) struct Wire {
    response: Response,
    /// Read, and not taken yet.
    held: BytesMut,
    idle: Duration,
    read: usize,
}

impl Wire {
    pub(super) fn new(response: Response, idle: Duration) -> Wire {
        Wire { response, held: BytesMut::new(), idle, read: 0 }
    }

    /// The next bytes; `None` at the end that the server meant.
    async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        if !self.held.is_empty() {
            return Ok(Some(self.held.split().freeze()));
        }
        let chunk = timeout(self.idle, self.response.chunk()).await.map_err(|_| Error::Idle(self.idle))?;
        let chunk = chunk.map_err(|error| Error::Broken(failure::chain(&error)))?;
        self.read += chunk.as_ref().map_or(0, Bytes::len);
        if self.read > LONGEST { Err(Error::TooLong) } else { Ok(chunk) }
    }

    /// The first byte that is no white space and no byte order mark. Nothing is taken.
    pub(super) async fn first(&mut self) -> Result<Option<u8>, Error> {
        let mut start = BytesMut::new();
        loop {
            let text = start.strip_prefix(BOM).unwrap_or(&start);
            if let Some(first) = text.iter().find(|byte| !byte.is_ascii_whitespace()).copied() {
                self.held = start;
                return Ok(Some(first));
            }
            match self.next().await? {
                Some(chunk) => start.extend_from_slice(&chunk),
                None => return Ok(None),
            }
        }
    }

    /// Everything, without a byte order mark.
    pub(super) async fn all(&mut self) -> Result<Vec<u8>, Error> {
        let mut body = Vec::new();
        while let Some(chunk) = self.next().await? {
            body.extend_from_slice(&chunk);
        }
        let bom = if body.starts_with(BOM) { BOM.len() } else { 0 };
        Ok(body.split_off(bom))
    }

    /// The start of it, as far as it comes.
    pub(super) async fn start(&mut self, longest: usize) -> Vec<u8> {
        let mut body = Vec::new();
        while let Ok(Some(chunk)) = self.next().await {
            body.extend_from_slice(&chunk);
            if body.len() >= longest {
                body.truncate(longest);
                break;
            }
        }
        body
    }

    /// The events in it.
    pub(super) fn events(self) -> impl Stream<Item = Result<Sse, sse_stream::Error>> {
        let bytes = stream::unfold(Some(self), |wire| async {
            let mut wire = wire?;
            match wire.next().await {
                Ok(Some(chunk)) => Some((Ok(chunk), Some(wire))),
                // Some servers leave out the empty line behind the last event.
                Ok(None) => Some((Ok(Bytes::from_static(b"\n\n")), None)),
                Err(error) => Some((Err(error), None)),
            }
        });
        SseByteStream::new(bytes)
    }
}
