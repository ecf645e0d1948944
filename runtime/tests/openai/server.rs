//! An HTTP server that sends what it is told to, byte by byte, and remembers what it was asked.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use serde_json::Value;

/// What is sent in answer to one request. The connection is closed behind it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Answer {
    parts: Vec<Part>,
    keep: bool,
}

#[derive(Debug, Clone)]
enum Part {
    Bytes(Vec<u8>),
    Pause(Duration),
    /// Until the client closes the connection.
    UntilClosed,
}

impl Answer {
    /// These bytes and no more.
    pub(crate) fn raw(bytes: impl Into<Vec<u8>>) -> Answer {
        Answer { parts: vec![Part::Bytes(bytes.into())], keep: false }
    }

    /// A status with more headers (each with its line end) and a body.
    pub(crate) fn status(status: u16, headers: &str, body: &str) -> Answer {
        let length = body.len();
        Answer::raw(format!("HTTP/1.1 {status} Status\r\n{headers}Content-Length: {length}\r\n\r\n{body}"))
    }

    /// A body in JSON.
    pub(crate) fn json(body: &str) -> Answer {
        Answer::status(200, "Content-Type: application/json\r\n", body)
    }

    /// The start of a stream of events.
    pub(crate) fn stream() -> Answer {
        Answer::raw("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    }

    /// One more chunk of it.
    pub(crate) fn chunk(self, bytes: impl AsRef<[u8]>) -> Answer {
        let bytes = bytes.as_ref();
        let chunk = [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
        self.and(Part::Bytes(chunk))
    }

    /// The end of it.
    pub(crate) fn end(self) -> Answer {
        self.and(Part::Bytes(b"0\r\n\r\n".to_vec()))
    }

    /// A chunk whose second half never comes.
    pub(crate) fn half_a_chunk(self, bytes: &str) -> Answer {
        self.and(Part::Bytes(format!("{:x}\r\n{bytes}", bytes.len() * 2).into_bytes()))
    }

    /// A pause.
    pub(crate) fn pause(self, millis: u64) -> Answer {
        self.and(Part::Pause(Duration::from_millis(millis)))
    }

    /// Waits until the client has closed the connection.
    pub(crate) fn until_closed(self) -> Answer {
        self.and(Part::UntilClosed)
    }

    /// Keeps the connection for the next request.
    pub(crate) fn keep(mut self) -> Answer {
        self.keep = true;
        self
    }

    fn and(mut self, part: Part) -> Answer {
        self.parts.push(part);
        self
    }
}

/// What was asked.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// Method and path.
    pub(crate) line: String,
    /// In lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Value,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

#[derive(Default)]
struct State {
    answers: Mutex<VecDeque<Answer>>,
    asked: Mutex<Vec<Asked>>,
    connections: AtomicUsize,
}

/// Answers request after request; the last answer is given to all that follow.
pub(crate) struct Server {
    address: SocketAddr,
    state: Arc<State>,
    closed: Mutex<Receiver<()>>,
}

impl Server {
    pub(crate) fn new(answers: impl IntoIterator<Item = Answer>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let state = Arc::new(State { answers: Mutex::new(answers.into_iter().collect()), ..State::default() });
        let (tell, closed) = channel();
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                shared.connections.fetch_add(1, Ordering::SeqCst);
                let (state, tell) = (Arc::clone(&shared), tell.clone());
                // A client that goes away in the middle is a case like others.
                thread::spawn(move || _ = serve(stream, &state, &tell));
            }
        });
        Server { address, state, closed: Mutex::new(closed) }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        lock(&self.state.asked).clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// Whether a client closed its connection within this time while it was answered.
    pub(crate) fn was_closed(&self, within: Duration) -> bool {
        lock(&self.closed).recv_timeout(within).is_ok()
    }
}

fn serve(stream: TcpStream, state: &State, tell: &Sender<()>) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut stream = stream;
    stream.set_nodelay(true)?;
    loop {
        let asked = read(&mut reader)?;
        lock(&state.asked).push(asked);
        let answer = {
            let mut answers = lock(&state.answers);
            if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() }.unwrap_or_default()
        };
        for (at, part) in answer.parts.iter().enumerate() {
            match part {
                // Said, so that a client does not send its next request into a connection that is just being closed.
                Part::Bytes(bytes) if at == 0 && !answer.keep => match bytes.iter().position(|byte| *byte == b'\n') {
                    Some(line) if bytes.starts_with(b"HTTP/1.1 ") => {
                        let closes: &[u8] = b"Connection: close\r\n";
                        stream.write_all(&[&bytes[..=line], closes, &bytes[line + 1..]].concat())?;
                    }
                    _ => stream.write_all(bytes)?,
                },
                Part::Bytes(bytes) => stream.write_all(bytes)?,
                Part::Pause(time) => thread::sleep(*time),
                Part::UntilClosed => {
                    _ = reader.read(&mut [0]);
                    _ = tell.send(());
                }
            }
        }
        if !answer.keep {
            return Ok(());
        }
    }
}

fn read(reader: &mut impl BufRead) -> io::Result<Asked> {
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match line.trim_end() {
            "" => break,
            line => head.push(line.to_owned()),
        }
    }
    let lower = |name: &str| name.trim().to_lowercase();
    let header = |line: &String| line.split_once(':').map(|(name, value)| (lower(name), value.trim().to_owned()));
    let headers: Vec<(String, String)> = head.iter().skip(1).filter_map(header).collect();
    let length = headers.iter().find(|(name, _)| name == "content-length").and_then(|(_, value)| value.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body)?;
    let line = head.first().and_then(|line| line.rsplit_once(' ')).map(|(line, _)| line.to_owned());
    Ok(Asked { line: line.unwrap_or_default(), headers, body: serde_json::from_slice(&body).unwrap_or_default() })
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().expect("not poisoned")
}
