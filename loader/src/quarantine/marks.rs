//! Crash marks: who was running when the process died.
//!
//! Decision: before each call of an engine in this process, a few bytes in a file say so; after it, they say that the call
//! is over. The file is written, not mapped: what is in the page cache outlives the process, and a file that somebody
//! truncates cannot kill it. It is not synchronised: a power failure may lose a mark, and a mark lost convicts nobody.
//!
//! One file per opened state folder and process, `state/marks/<pid>-<start>.marks`, locked for as long as the process lives:
//! whoever can take the lock knows that its owner is dead, also across containers and after the number was used again. A
//! block of 1,024 bytes for the file, then one for each engine thread; numbers are little-endian:
//!
//! | file | | thread | |
//! |---|---|---|---|
//! | 0..8 | `CEMARKS1` | 0 | 1 in a call, 2 for what the library does outside of calls, else 0 |
//! | 8 | how the process ended in order: a signal, 255 by `exit` | 1 | stamp: a signal, 255 `exit`, 254 the host's own fault |
//! | 12..16 | process number | 2 | operation, an index into `OPERATIONS` |
//! | 16..24 | its start | 4..8 | thread number |
//! | 32..64 | version of the host | 8..136 | calls completed in this process, by operation |
//! | | | 136..168, 168..200 | digest, key |
//! | | | 200..264, 264.. | engine id, plugin's path, filled up with zeros |
//!
//! Calls are counted per key and process, not per thread: a thread that is new in a process which has served for hours
//! is no beginner.
//!
//! Two things an engine does are no calls. A thread that ends runs the destructors of the engine's thread-locals: it is
//! marked until it is gone, and its place is not used again before ([`MarkSlot::end_thread`]). And an engine may start
//! threads of its own: one block per key is stamped when such a thread makes a fault in the library's own code
//! ([`Marks::watch`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::key::{QuarantineKey, Subject, from_hex};
use super::record::ProcessStamp;
use crate::dylib::signals;
use crate::platform::{create_private_dir, open_regular, write_at};

/// Where marks are kept, in the state folder.
pub const FOLDER: &str = "marks";

pub(crate) const MAGIC: [u8; 8] = *b"CEMARKS1";
pub(crate) const BLOCK: usize = 1024;
/// Place in the file that says how the process ended in order.
pub(crate) const ENDED: usize = 8;
pub(super) const COUNTERS: std::ops::Range<usize> = 8..136;
pub(super) const DIGEST: std::ops::Range<usize> = 136..168;
pub(super) const KEY: std::ops::Range<usize> = 168..200;
pub(super) const ENGINE: std::ops::Range<usize> = 200..264;
pub(super) const PATH: std::ops::Range<usize> = 264..BLOCK;
/// Slots of one file: more engine threads than that run without a mark.
pub(super) const MOST_SLOTS: usize = 1024;

/// What an engine can be called for. A file may be read by another version of the host: grows at its end only, up to 32.
pub(crate) const OPERATIONS: [&str; 23] = [
    "another member",
    "open",
    "create",
    "drop",
    "dispose",
    "bootstrap",
    "maintain",
    "ingest",
    "ingest_batch",
    "assemble",
    "compact",
    "after_turn",
    "commit_turn",
    "prepare_subagent_spawn",
    "rollback_subagent_spawn",
    "on_subagent_ended",
    "info",
    "extension",
    "list_tools",
    "call_tool",
    "probe",
    THREAD_END,
    OUTSIDE,
];

/// A thread that ends, after its last call.
pub(super) const THREAD_END: &str = "the end of a thread";
/// What threads do that are in no call.
pub(super) const OUTSIDE: &str = "work outside of a call";
/// Byte 0 of the block for that.
pub(super) const IS_OUTSIDE: u8 = 2;

/// Calls completed in this process.
type Counts = [AtomicU32; 32];

/// The marks of this process in one state folder. Cheap to clone; the last clone removes the file.
#[derive(Debug, Clone)]
pub(crate) struct Marks {
    file: Option<Arc<MarksFile>>,
}

#[derive(Debug)]
struct MarksFile {
    path: PathBuf,
    file: File,
    slots: Mutex<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    made: usize,
    free: Vec<(usize, QuarantineKey)>,
    /// Keys whose library is watched.
    watched: BTreeSet<QuarantineKey>,
}

impl Marks {
    /// A file of marks in `state_dir`, and the handlers that stamp them. Where no file can be made there are no marks,
    /// and that is said once; an empty path means that the host wants none.
    pub(crate) fn open(state_dir: &Path) -> Marks {
        if state_dir.as_os_str().is_empty() {
            return Marks { file: None };
        }
        give_back_places();
        match MarksFile::create(&state_dir.join(FOLDER)) {
            Ok(file) => {
                signals::install();
                signals::register(&file.file);
                Marks { file: Some(Arc::new(file)) }
            }
            Err(error) => {
                let state_dir = state_dir.display();
                tracing::warn!(
                    %state_dir, %error,
                    "no crash marks: after a crash nobody will know which engine was running; make the state folder writable"
                );
                Marks { file: None }
            }
        }
    }

    /// A mark for one thread that calls `subject`. Its place is used again when it is dropped.
    pub(crate) fn slot(&self, subject: &Subject) -> MarkSlot {
        give_back_places();
        let place = self.file.clone().and_then(|file| {
            let at = file.take(subject)?;
            Some(Place { file, at, key: subject.key })
        });
        MarkSlot { place, counts: counts_of(subject.key), running: AtomicU8::new(0) }
    }
}

impl Marks {
    /// From now on a fault in the code of the subject's library is its own, also on a thread that is in no call. For when
    /// the library is open: its copy has the digest for a name.
    pub(crate) fn watch(&self, subject: &Subject) {
        self.watch_where(subject, |path| path.file_stem().is_some_and(|stem| *stem == *subject.digest));
    }

    pub(super) fn watch_where(&self, subject: &Subject, is_it: impl Fn(&Path) -> bool) {
        let Some(file) = &self.file else { return };
        let watched = || file.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if !watched().watched.insert(subject.key) {
            return;
        }
        let Some(at) = file.take(subject) else { return };
        let operation = OPERATIONS.iter().position(|name| *name == OUTSIDE).unwrap_or(0);
        let written = write_at(&file.file, &[IS_OUTSIDE, 0, operation as u8], at).is_ok();
        if !(written && signals::watch_library(is_it, &file.file, at + 1)) {
            tracing::debug!(engine = subject.engine, "what its own threads do will not be told");
        }
    }
}

/// Places of threads that are ending.
static LEAVING: Mutex<Vec<(u32, Place)>> = Mutex::new(vec![]);

/// Gives back the places of the threads that are gone by now.
fn give_back_places() {
    let gone: Vec<(u32, Place)> = {
        let mut leaving = LEAVING.lock().unwrap_or_else(PoisonError::into_inner);
        leaving.extract_if(.., |(thread, _)| signals::thread_is_gone(*thread)).collect()
    };
    for (_, place) in gone {
        // Nobody is there any more: not even a suspect.
        let _ = write_at(&place.file.file, &[0, 0], place.at);
    }
}

impl Drop for Marks {
    fn drop(&mut self) {
        give_back_places();
    }
}

impl MarksFile {
    fn create(folder: &Path) -> io::Result<MarksFile> {
        static FILES: AtomicU32 = AtomicU32::new(0);
        create_private_dir(folder)?;
        let process = ProcessStamp::current();
        let stem = format!("{}-{}", process.pid, process.start);
        let name = match FILES.fetch_add(1, Ordering::Relaxed) {
            0 => stem,
            another => format!("{stem}-{another}"),
        };
        let (begun, path) = (folder.join(format!("{name}.new")), folder.join(format!("{name}.marks")));
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = open_regular(&begun, &mut options)?;
        // Before it has its name: under that name, a file that is not locked is that of a dead process. Where files cannot
        // be locked, the number and the start of the process in it have to do.
        let _ = file.try_lock();
        let mut header = [0; BLOCK];
        header[..8].copy_from_slice(&MAGIC);
        header[12..16].copy_from_slice(&process.pid.to_le_bytes());
        header[16..24].copy_from_slice(&process.start.to_le_bytes());
        put(&mut header[32..64], env!("CARGO_PKG_VERSION").as_bytes());
        write_at(&file, &header, 0)?;
        fs::rename(&begun, &path)?;
        Ok(MarksFile { path, file, slots: Mutex::default() })
    }

    /// Takes a place and writes whose it is. `None` when there is none or it cannot be written.
    fn take(&self, subject: &Subject) -> Option<u64> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        // One of the same key first: what another one counted is still to be read after a crash.
        let same = slots.free.iter().position(|(_, key)| *key == subject.key);
        let at = match same {
            Some(same) => slots.free.swap_remove(same).0,
            None if slots.made < MOST_SLOTS => {
                slots.made += 1;
                slots.made - 1
            }
            None => slots.free.pop()?.0,
        };
        drop(slots);
        let offset = ((at + 1) * BLOCK) as u64;
        let mut block = [0; BLOCK];
        block[COUNTERS].copy_from_slice(&counted(&counts_of(subject.key)));
        block[DIGEST].copy_from_slice(&from_hex(&subject.digest).unwrap_or_default());
        block[KEY].copy_from_slice(&subject.key.bytes());
        put(&mut block[ENGINE], subject.engine.as_bytes());
        put(&mut block[PATH], subject.path.to_string_lossy().as_bytes());
        match write_at(&self.file, &block, offset) {
            Ok(()) => Some(offset),
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "a crash mark cannot be written");
                None
            }
        }
    }
}

impl Drop for MarksFile {
    fn drop(&mut self) {
        signals::unregister(&self.file);
        // Left behind, it is judged and removed at the next start.
        let _ = fs::remove_file(&self.path);
    }
}

#[derive(Debug)]
struct Place {
    file: Arc<MarksFile>,
    at: u64,
    key: QuarantineKey,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut slots = self.file.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.free.push((self.at as usize / BLOCK - 1, self.key));
    }
}

/// The mark of one engine thread.
#[derive(Debug)]
pub(crate) struct MarkSlot {
    /// `None`: no marks.
    place: Option<Place>,
    counts: Arc<Counts>,
    /// The operation in the file, plus one.
    running: AtomicU8,
}

impl MarkSlot {
    /// Marks that this thread is in `operation` until what is returned is dropped. Costs one system call, and one more
    /// at the end: about 2 µs for both, on a shared x86_64 VM.
    pub(crate) fn enter(&self, operation: &'static str) -> InCall<'_> {
        let index = OPERATIONS.iter().position(|name| *name == operation).unwrap_or(0);
        let mut call = InCall { slot: self, operation: index, outer: 0, before: None, this_thread_only: PhantomData };
        if let Some(place) = &self.place {
            call.outer = self.running.swap(index as u8 + 1, Ordering::Relaxed);
            let (before, thread) = signals::enter(&place.file.file, place.at + 1);
            call.before = Some((before, thread));
            let mut mark = [1, 0, index as u8, 0, 0, 0, 0, 0];
            mark[4..].copy_from_slice(&thread.to_le_bytes());
            // A mark that cannot be written convicts nobody; the call matters more.
            let _ = write_at(&place.file.file, &mark, place.at);
        }
        call
    }
}

impl MarkSlot {
    /// Marks that this thread ends: what still runs on it are destructors of thread-locals, and those of the engine run
    /// when nothing of the host's does. The place is given back when the thread is gone. Where threads have no number it
    /// is given back now, unmarked.
    pub(crate) fn end_thread(mut self) {
        let Some(place) = self.place.take().filter(|_| signals::KNOWS_THREADS) else { return };
        let (_, thread) = signals::enter(&place.file.file, place.at + 1);
        let operation = OPERATIONS.iter().position(|name| *name == THREAD_END).unwrap_or(0);
        let mut mark = [1, 0, operation as u8, 0, 0, 0, 0, 0];
        mark[4..].copy_from_slice(&thread.to_le_bytes());
        let _ = write_at(&place.file.file, &mark, place.at);
        LEAVING.lock().unwrap_or_else(PoisonError::into_inner).push((thread, place));
    }
}

/// A call that is running. Stays on its thread.
#[derive(Debug)]
pub(crate) struct InCall<'a> {
    slot: &'a MarkSlot,
    operation: usize,
    /// What the mark said before, as in `running`: a call within a call.
    outer: u8,
    before: Option<(signals::Before, u32)>,
    this_thread_only: PhantomData<*const ()>,
}

impl Drop for InCall<'_> {
    fn drop(&mut self) {
        let slot = self.slot;
        slot.counts[self.operation].fetch_add(1, Ordering::Relaxed);
        if let (Some(place), Some((before, thread))) = (&slot.place, self.before) {
            slot.running.store(self.outer, Ordering::Relaxed);
            let mut mark = [0; COUNTERS.end];
            if let Some(outer) = self.outer.checked_sub(1) {
                (mark[0], mark[2]) = (1, outer);
            }
            mark[4..8].copy_from_slice(&thread.to_le_bytes());
            mark[COUNTERS].copy_from_slice(&counted(&slot.counts));
            let _ = write_at(&place.file.file, &mark, place.at);
            signals::leave(before);
        }
    }
}

/// From now on this thread runs the host's own code for an engine: what it does there is not the engine's fault. Ends
/// when what is returned is dropped.
pub(crate) fn pause() -> Paused {
    Paused { before: signals::set_paused(true), this_thread_only: PhantomData }
}

/// The host's own code on an engine's thread.
#[derive(Debug)]
pub(crate) struct Paused {
    before: bool,
    this_thread_only: PhantomData<*const ()>,
}

impl Drop for Paused {
    fn drop(&mut self) {
        signals::set_paused(self.before);
    }
}

/// The calls this process completed of `key`: one count, however many threads and files of marks it has.
fn counts_of(key: QuarantineKey) -> Arc<Counts> {
    static ALL: Mutex<BTreeMap<QuarantineKey, Arc<Counts>>> = Mutex::new(BTreeMap::new());
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    all.entry(key).or_insert_with(|| Arc::new([const { AtomicU32::new(0) }; 32])).clone()
}

fn counted(counts: &Counts) -> [u8; 128] {
    let mut bytes = [0; 128];
    for (four, count) in bytes.chunks_exact_mut(4).zip(counts) {
        four.copy_from_slice(&count.load(Ordering::Relaxed).to_le_bytes());
    }
    bytes
}

/// Copies as much of `text` as there is room for.
fn put(room: &mut [u8], text: &[u8]) {
    let length = text.len().min(room.len());
    room[..length].copy_from_slice(&text[..length]);
}
