//! Whether a layout only adds to an older one, by the rules of `docs/abi.md`; what breaks is named by type and field.
//!
//! Decision: stricter than the check at load time. That one decides about two builds that exist and must not refuse what
//! happens to work; this one decides what may be released. A trait method without a default body passes there, and ends
//! the host's call into every older engine here.

use std::collections::BTreeMap;

/// What `later` does to users of `earlier`, one line each; both as [`crate::layout`] writes them. Empty when it only adds.
pub fn broken(earlier: &str, later: &str) -> Vec<String> {
    let (earlier, later) = (Layout::read(earlier), Layout::read(later));
    let mut broken = Vec::new();
    for (name, kind) in &earlier.types {
        match later.types.get(name) {
            Some(now) => kind.broken_by(now).into_iter().for_each(|what| broken.push(format!("`{name}`: {what}"))),
            None => broken.push(format!("`{name}` is gone")),
        }
    }
    for (name, was) in &earlier.facts {
        match later.facts.get(name) {
            Some(is) if is == was => {}
            Some(is) => broken.push(format!("`{name}` is {is}, was {was}")),
            None => broken.push(format!("`{name}` is gone, was {was}")),
        }
    }
    // One that stands nowhere any more harms nobody; where it stood is told above.
    for (name, was) in &earlier.foreign {
        if let Some(is) = later.foreign.get(name).filter(|is| *is != was) {
            broken.push(format!("`{name}`: size {}, was {}", is.join("; "), was.join("; ")));
        }
    }
    broken
}

#[derive(Default)]
struct Layout<'a> {
    types: BTreeMap<&'a str, Type<'a>>,
    /// What the open numbers mean, and how wide a pointer is.
    facts: BTreeMap<&'a str, &'a str>,
    /// Sizes of other crates' types. A name may stand for several.
    foreign: BTreeMap<&'a str, Vec<&'a str>>,
}

struct Type<'a> {
    kind: &'a str,
    /// Size and alignment.
    size: &'a str,
    /// How many fields were there from the beginning.
    prefix: &'a str,
    fields: Vec<Field<'a>>,
}

struct Field<'a> {
    name: &'a str,
    /// Offset and size; of a variant, its number.
    place: &'a str,
    /// Type, signature, or what the variant holds.
    kind: &'a str,
}

impl<'a> Layout<'a> {
    fn read(text: &'a str) -> Layout<'a> {
        let mut layout = Layout::default();
        let mut open: Option<&'a str> = None;
        for line in text.lines() {
            let (name, numbers) = line.split_once(" size ").unwrap_or((line, ""));
            let (first, rest) = name.split_once(' ').unwrap_or((name, ""));
            if let (Some(name), Some(field)) = (open, line.strip_prefix("  ")) {
                let kind = layout.types.get_mut(name).expect("an open type is there");
                kind.fields.push(Field::read(field));
            } else if matches!(first, "struct" | "prefix" | "enum" | "open-enum") {
                let (size, prefix) = numbers.split_once(" prefix ").unwrap_or((numbers, ""));
                layout.types.insert(rest, Type { kind: first, size, prefix, fields: Vec::new() });
                open = Some(rest);
            } else if first == "value" {
                let (name, value) = rest.split_once(' ').unwrap_or((rest, ""));
                layout.facts.insert(name, value);
            } else if first == "foreign" {
                layout.foreign.entry(rest).or_default().push(numbers);
            } else if !line.is_empty() {
                layout.facts.insert("a pointer", line);
            }
        }
        layout
    }
}

impl<'a> Field<'a> {
    fn read(line: &'a str) -> Field<'a> {
        let (place, kind) = line.split_once(": ").unwrap_or((line, ""));
        let (place, name) = place.rsplit_once(' ').unwrap_or(("", place));
        Field { name, place, kind }
    }

    fn offset(&self) -> &str {
        self.place.split(' ').next().unwrap_or_default()
    }
}

impl Type<'_> {
    fn broken_by(&self, now: &Type<'_>) -> Vec<String> {
        let mut broken = Vec::new();
        if self.kind != now.kind {
            return vec![format!("it is a {}, was a {}", now.kind, self.kind)];
        }
        for (at, was) in self.fields.iter().enumerate() {
            let name = was.name;
            match (now.fields.get(at), now.fields.iter().find(|field| field.name == name)) {
                (Some(is), _) if is.name == name && is.kind == was.kind && is.place == was.place => {}
                (_, Some(is)) if is.kind == was.kind => {
                    broken.push(format!("field `{name}` is at {}, was at {}", is.offset(), was.offset()));
                }
                (_, Some(is)) => broken.push(format!("field `{name}` is {}, was {}", is.kind, was.kind)),
                (_, None) => broken.push(format!("field `{name}` is gone, was {}", was.kind)),
            }
        }
        let fields = now.fields.iter().filter(|field| self.fields.iter().all(|was| was.name != field.name));
        let grows = matches!(self.kind, "prefix" | "open-enum");
        for field in fields {
            let name = field.name;
            if !grows {
                broken.push(format!("field `{name}` is new, and a {} never grows", self.kind));
            } else if self.kind == "prefix" && !field.kind.ends_with(" optional") {
                broken
                    .push(format!("field `{name}` is new and has no default: who reads it in an older build's panics"));
            }
        }
        if self.prefix != now.prefix {
            broken.push(format!("the first {} fields are always there, were {}", now.prefix, self.prefix));
        }
        // A prefix grows with what is appended to it.
        if self.size != now.size
            && (self.kind != "prefix" || broken.is_empty() && self.fields.len() == now.fields.len())
        {
            broken.push(format!("size {}, was {}", now.size, self.size));
        }
        broken
    }
}
