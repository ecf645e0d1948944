//! Reads the lines of a session file into the index: the whole file when it is opened, and what another program wrote
//! since, later.
//!
//! Decision: a line that reads as one entry costs one pass and no copy. Any other goes to the importer's mending, so that
//! what is found on a damaged line, what is lost, and the numbers that say so are the same for both.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

use serde_json::{Map, Value};

use super::head::Head;
use super::index::{Index, Kind, NewPlace};
use super::platform;
use crate::import::lines::{self, Damage};
use crate::import::openclaw::{self, ACCEPT};

/// What is read from the file at a time.
const BUFFER: usize = 256 * 1024;

/// What the lines of a file said so far.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// The first header.
    pub(super) header: Option<Map<String, Value>>,
    /// Id and line of the first header that is of another session.
    pub(super) second: Option<(String, u64)>,
    /// Whether a line shows that the file is a session file.
    pub(super) is_session: bool,
    /// The last `leaf` entry, and its target as it was recorded.
    pub(super) leaf: Option<(usize, Option<String>)>,
    /// How much of the file was read.
    pub(super) length: u64,
    /// Whether the file is empty or ends with the end of a line.
    pub(super) ends_clean: bool,
    /// The first bytes that are no blanks.
    pub(super) start: Vec<u8>,
    /// Whether anything but NUL and blanks is in it.
    pub(super) has_text: bool,
    /// Id of the session when no header names it.
    name_id: String,
    damage: Damage,
    lines: u64,
    /// Records so far, headers included.
    records: u64,
    /// Records so far, lost ones too.
    position: u64,
    /// Where to go on when the file grows, and `position` there: behind what was read, or at the start of a last line
    /// that holds no record yet and may be one that was being written.
    resume: (u64, u64),
}

impl Scan {
    pub(super) fn new(name_id: String) -> Scan {
        Scan { name_id, ends_clean: true, ..Scan::default() }
    }

    /// The session's id.
    pub(super) fn id(&self) -> &str {
        self.header.as_ref().and_then(|header| text(header, "id")).unwrap_or(&self.name_id)
    }

    /// Records so far, lost ones and headers included.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Reads on to the end of the file; what was damaged of what was read.
    pub(super) fn read(&mut self, file: &File, index: &mut Index) -> io::Result<Damage> {
        let mut at = self.resume.0;
        // A last line that is read once more is counted already.
        let mut is_begun = at < self.length;
        self.position = self.resume.1;
        let mut reader = BufReader::with_capacity(BUFFER, ReadAt { file, at });
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line)? > 0 {
            self.lines += u64::from(!std::mem::take(&mut is_begun));
            let (start, records, position) = (at, self.records, self.position);
            self.line(&line, at, index);
            at += line.len() as u64;
            self.length = at;
            self.ends_clean = line.ends_with(b"\n");
            let is_settled = self.ends_clean || self.records > records;
            self.resume = if is_settled { (at, self.position) } else { (start, position) };
            line.clear();
        }
        Ok(std::mem::take(&mut self.damage))
    }

    /// The lines that were written by the store itself, which knows what is on them.
    pub(super) fn passed(&mut self, lines: u64, bytes: u64) {
        self.lines += lines;
        self.records += lines;
        self.position += lines;
        self.length += bytes;
        self.resume = (self.length, self.position);
        self.ends_clean = true;
    }

    fn line(&mut self, line: &[u8], mut at: u64, index: &mut Index) {
        let mut line = line;
        if at == 0
            && let Some(rest) = line.strip_prefix(b"\xef\xbb\xbf")
        {
            (line, at) = (rest, 3);
        }
        let blank = line.len() - line.trim_ascii_start().len();
        let (line, at) = (line.trim_ascii(), at + blank as u64);
        if line.is_empty() {
            return;
        }
        if self.start.is_empty() {
            self.start = line.iter().take(64).copied().collect();
        }
        self.has_text |= line.iter().any(|b| *b != 0 && !b.is_ascii_whitespace());
        if let Ok(text) = std::str::from_utf8(line)
            && let Ok(length) = u32::try_from(line.len())
            && let Some(head) = Head::read(text)
        {
            self.record(&head, Source { text, at, length, is_mended: false }, index);
            return;
        }
        let mut found = lines::mend(line, &ACCEPT);
        self.damage.note(self.lines, &found);
        let length = u32::try_from(line.len()).unwrap_or(0);
        for (lost_before, json) in std::mem::take(&mut found.records) {
            self.position += lost_before;
            self.damage.lost += lost_before;
            found.lost -= lost_before;
            let text = json.to_string();
            match Head::read(&text) {
                Some(head) => self.record(&head, Source { text: &text, at, length, is_mended: true }, index),
                None => self.damage.lost += 1,
            }
        }
        self.damage.lost += found.lost;
        self.position += found.lost;
    }

    fn record(&mut self, head: &Head<'_>, source: Source<'_>, index: &mut Index) {
        let position = self.position;
        self.position += 1;
        self.records += 1;
        if head.kind == "session" {
            if let Ok(Value::Object(map)) = serde_json::from_str(source.text) {
                self.header(map);
            }
            return;
        }
        // Formats of other agents have lines with a `type` and an `id`, too.
        self.is_session |= head.id.is_some()
            && match head.kind.as_ref() {
                "message" => head.has_message,
                kind => openclaw::KINDS.contains(&kind),
            };
        let kind = Kind::of(&head.kind);
        let new = NewPlace {
            id: head.id.as_deref(),
            kind,
            continues: head.continues,
            at: source.at,
            length: source.length,
            position,
            mended: source.is_mended.then(|| source.text.to_owned()),
        };
        let place = index.add(new, &head.parent);
        if kind == Kind::Leaf {
            self.leaf = Some((place, head.target.as_deref().map(str::to_owned)));
        }
    }

    /// Headers are those of one session as long as the second names no other id than the first.
    fn header(&mut self, map: Map<String, Value>) {
        self.is_session |= ["id", "version", "cwd"].iter().any(|key| map.contains_key(*key));
        let id = text(&map, "id").unwrap_or(&self.name_id);
        if self.header.is_none() {
            self.header = Some(map);
        } else if self.id() != id {
            let second = (id.to_owned(), self.lines);
            self.second.get_or_insert(second);
        }
    }
}

fn text<'a>(map: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    map.get(key).and_then(Value::as_str).filter(|text| !text.is_empty())
}

/// Where a record comes from.
struct Source<'a> {
    text: &'a str,
    at: u64,
    length: u32,
    is_mended: bool,
}

/// A file from a place on, without moving its own position.
struct ReadAt<'a> {
    file: &'a File,
    at: u64,
}

impl Read for ReadAt<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = platform::read_at(self.file, buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}
