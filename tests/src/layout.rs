//! The interface's layout as text: what crosses the boundary, byte by byte, to be kept beside a frozen version.
//!
//! Decision: text, because a person who reads the diff of one has to see what they are about to break. It says only what
//! older builds rely on: offsets, types and signatures, not names of modules nobody calls by name. Everything reachable
//! from the root module is in it; types of other crates as one line, for their version is exact. This file alone renders
//! the layout of any interface: hosts on changed interfaces are built with a copy of it.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write;

use abi_stable::StableAbi;
use abi_stable::std_types::UTypeId;
use abi_stable::type_layout::{FieldAccessor, TLData, TLField, TLFunction, TLPrimitive, TypeLayout};
use context_engine_interface::abi::module::EngineModule;
use context_engine_interface::{
    BlockFlags, BlockKind, CommitStatus, CompactionTarget, ErrorCode, LogLevel, MessageFlags, PromptAuthority, Role,
    SegmentKind,
};

/// The layout of the interface this was built with. [`append_only`](../append_only) compares two of them.
pub fn of_interface() -> String {
    let root = <EngineModule as StableAbi>::LAYOUT;
    let mut types = Types::default();
    types.visit(root);
    let mut text = format!("{}-bit\n", usize::BITS);
    for (name, lines) in &types.own {
        let _ = write!(text, "\n{name} {lines}");
    }
    text.push('\n');
    for line in types.foreign.into_iter().chain(values()) {
        let _ = writeln!(text, "{line}");
    }
    text
}

#[derive(Default)]
struct Types {
    seen: HashSet<UTypeId>,
    /// Kind and name; numbers and fields.
    own: BTreeMap<String, String>,
    /// Types of other crates that stand in the own ones.
    foreign: BTreeSet<String>,
}

impl Types {
    fn visit(&mut self, layout: &'static TypeLayout) {
        if !self.seen.insert(layout.get_utypeid()) {
            return;
        }
        if let Some(path) = own_path(layout) {
            let (kind, lines) = self.lines(layout);
            self.own.insert(format!("{kind} {path}::{}", name(layout)), lines);
        }
        for nested in layout.shared_vars().type_layouts() {
            self.visit(nested());
        }
    }

    /// The kind of an interface's own type; its numbers and fields.
    fn lines(&mut self, layout: &'static TypeLayout) -> (&'static str, String) {
        let mut lines = format!("size {} align {}", layout.size(), layout.alignment());
        let fields: Vec<TLField> = layout.get_fields().map(|fields| fields.iter().collect()).unwrap_or_default();
        self.foreign.extend(fields.iter().flat_map(mentioned).filter_map(foreign));
        let kind = match layout.data() {
            TLData::Enum(variants) => {
                let open = variants.exhaustiveness.is_nonexhaustive();
                lines.push('\n');
                let mut fields = fields.iter();
                let variants = variants.variant_names_iter().zip(variants.field_count.iter());
                for (at, (variant, count)) in variants.enumerate() {
                    let fields: Vec<String> = fields.by_ref().take(usize::from(*count)).map(kind_of).collect();
                    let _ = writeln!(lines, "  {at} {variant}: {}", fields.join(", "));
                }
                return (if open { "open-enum" } else { "enum" }, lines);
            }
            TLData::PrefixType(prefix) => {
                let _ = write!(lines, " prefix {}", prefix.first_suffix_field);
                "prefix"
            }
            _ => "struct",
        };
        lines.push('\n');
        let mut end = 0_usize;
        for field in &fields {
            let (size, align) = (field.layout().size(), field.layout().alignment());
            let offset = end.next_multiple_of(align);
            let optional = if field.field_accessor() == FieldAccessor::MethodOption { " optional" } else { "" };
            let _ = writeln!(lines, "  {offset} {size} {}: {}{optional}", field.name(), kind_of(field));
            end = offset + size;
        }
        (kind, lines)
    }
}

/// Where a type of the interface stands in it; nothing for a type of another crate.
fn own_path(layout: &TypeLayout) -> Option<String> {
    layout.mod_path().to_string().strip_prefix("context_engine_interface::").map(str::to_owned)
}

/// The types a field is made of: its own, or those of its signature.
fn mentioned(field: &TLField) -> Vec<&'static TypeLayout> {
    let signature = |function: TLFunction| {
        let answer = function.return_type_layout();
        function.param_type_layouts.iter().chain(answer).map(|layout| layout()).collect::<Vec<_>>()
    };
    let called = field.function_range().iter().flat_map(signature);
    called.chain((!field.is_function()).then(|| field.layout())).collect()
}

fn foreign(layout: &'static TypeLayout) -> Option<String> {
    let line = || format!("foreign {} size {} align {}", name(layout), layout.size(), layout.alignment());
    own_path(layout).is_none().then(line)
}

/// The type of a field; of a function, its signature.
fn kind_of(field: &TLField) -> String {
    match field.function_range().iter().next() {
        Some(function) if field.is_function() => signature(&function),
        _ => name(field.layout()),
    }
}

fn signature(function: &TLFunction) -> String {
    let params: Vec<String> = function.param_type_layouts.iter().map(|layout| name(layout())).collect();
    let answer = function.return_type_layout().map_or("()".to_owned(), |layout| name(layout()));
    format!("fn({}) -> {answer}", params.join(", "))
}

/// A type with its parameters. abi_stable leaves those of its own types out.
fn name(layout: &'static TypeLayout) -> String {
    let nested = |fields: Vec<TLField>| fields.iter().map(|field| name(field.layout())).collect::<Vec<_>>().join(", ");
    let written = || layout.full_type().to_string();
    match layout.data() {
        TLData::Primitive(TLPrimitive::SharedRef) => format!("&{}", nested(layout.phantom_fields().iter().collect())),
        TLData::Enum(_) if matches!(layout.name(), "ROption" | "RResult") => {
            let fields = layout.get_fields().map(|fields| fields.iter().collect()).unwrap_or_default();
            format!("{}<{}>", layout.name(), nested(fields))
        }
        TLData::Struct { fields } if matches!(layout.name(), "RVec" | "RSlice" | "RSliceMut" | "RBox" | "RArc") => {
            let marker = fields.iter().find(|field| field.layout().name() == "PhantomData");
            let of = marker.and_then(|field| field.layout().generics().type_params().first());
            of.map_or_else(written, |of| format!("{}<{}>", layout.name(), name(of())))
        }
        _ => written(),
    }
}

/// What the open numbers mean.
fn values() -> impl Iterator<Item = String> {
    macro_rules! values {
        ($($type:ident: $($name:ident)+;)+) => {
            [$($((concat!(stringify!($type), "::", stringify!($name)), $type::$name.0)),+),+]
        };
    }
    let values = values! {
        Role: OTHER USER ASSISTANT TOOL_RESULT COMPACTION_SUMMARY BRANCH_SUMMARY BASH_EXECUTION CUSTOM;
        BlockKind: OTHER TEXT TOOL_CALL IMAGE THINKING;
        BlockFlags: SIGNED;
        MessageFlags: TOOL_ERROR HEARTBEAT SYNTHETIC ERRORED ABORTED EXCLUDED;
        SegmentKind: KEEP REPLACE INSERT;
        PromptAuthority: ASSEMBLED PREASSEMBLY_MAY_OVERFLOW;
        CommitStatus: COMMITTED DUPLICATE;
        CompactionTarget: BUDGET THRESHOLD;
        ErrorCode: FAILED UNKNOWN_HOST_PARAM CANCELLED PANICKED UNSUPPORTED UNAVAILABLE;
        LogLevel: OFF ERROR WARN INFO DEBUG TRACE;
    };
    values.into_iter().map(|(name, value)| format!("value {name} {value}"))
}
