//! Does what no engine may, where it is told to: what a probe is for.
//!
//! `{"in": "create", "do": "hang"}`: `in` is `create`, `assemble`, `tools` (their list), `dispose` or `drop`; `do` is one of those in [`act`],
//! anything else is an error. A constructor and the root module know no configuration, so the environment tells them:
//! `CONTEXT_ENGINE_TEST_CONSTRUCTOR` has what to `do`, `CONTEXT_ENGINE_TEST_EXTENSION` the length of an id that is
//! answered although there is no such extension, or `none`, and then not even the one it declares is.
//!
//! The module is made by hand: what `export_engine!` writes answers no such id.

use std::time::Duration;

use abi_stable::library::{__call_root_module_loader, CheckTypeLayout, LibHeader, RootModuleResult};
use abi_stable::nonexhaustive_enum::NonExhaustive;
use abi_stable::prefix_type::PrefixTypeTrait;
use context_engine_interface::abi::module::{
    EngineModule, EngineModuleFields, Export, Extension, Extension_NE, ToolsV1, header, tools_v1,
};
use context_engine_interface::record::{self, RecordFields};
use context_engine_interface::std_types::{RNone, ROption, RSome, RStr};
use context_engine_interface::{
    Acknowledged, AssembleParams, Assembly, CallContext, CompactParams, CompactResult, ContextEngine, DisposeParams,
    EngineContext, EngineError, EngineHost, EngineTools, IngestParams, IngestResult, LogLevel, ToolCallParams,
    ToolsListParams,
};

fn act(what: &str) -> Result<(), EngineError> {
    match what {
        "" => Ok(()),
        "hang" => loop {
            std::thread::sleep(Duration::from_secs(1));
        },
        "exit" => std::process::exit(3),
        "abort" => std::process::abort(),
        "segfault" => {
            // SAFETY: none. That is the point.
            unsafe { std::ptr::without_provenance_mut::<u8>(8).write_volatile(1) };
            Ok(())
        }
        "panic" => panic!("boom"),
        "print" => {
            eprintln!("last\nwords \u{1b}[31m");
            std::process::abort()
        }
        "flood" => loop {
            eprintln!("{}", "flood ".repeat(1_000));
        },
        // A process of its own, which would outlive this one.
        "spawn" => {
            let _ = std::process::Command::new("sleep").arg("297.531").spawn();
            act("hang")
        }
        "spawn and go on" => {
            let _ = std::process::Command::new("sleep").arg("297.532").spawn();
            Ok(())
        }
        "spawn and exit" => {
            let _ = std::process::Command::new("sleep").arg("297.533").spawn();
            act("exit")
        }
        other => Err(EngineError::failed(format!("{other} on purpose"))),
    }
}

extern "C" fn constructor() {
    let what = std::env::var("CONTEXT_ENGINE_TEST_CONSTRUCTOR").unwrap_or_default();
    let _ = act(&what);
}

#[used]
#[cfg_attr(target_vendor = "apple", unsafe(link_section = "__DATA,__mod_init_func"))]
#[cfg_attr(windows, unsafe(link_section = ".CRT$XCU"))]
#[cfg_attr(not(any(target_vendor = "apple", windows)), unsafe(link_section = ".init_array"))]
static CONSTRUCTOR: extern "C" fn() = constructor;

struct Probed {
    place: String,
    what: String,
    host: EngineHost,
    state_dir: String,
}

impl Probed {
    fn reach(&self, place: &str) -> Result<(), EngineError> {
        self.host.log(LogLevel::INFO, place);
        match self.what.strip_prefix("pipes, then ") {
            _ if self.place != place => Ok(()),
            None => act(&self.what),
            Some(what) => {
                self.put_pipes();
                act(what)
            }
        }
    }

    /// Named pipes wherever a host might look for what its child tells: reading one never ends.
    fn put_pipes(&self) {
        let folder = std::path::Path::new(&self.state_dir).join("..");
        let there = std::fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let guessed = ["verdict.json", "steps", "report"].map(|name| folder.join(name));
        for path in there.chain(guessed) {
            let _ = std::fs::remove_file(&path);
            let _ = std::process::Command::new("mkfifo").arg(&path).stderr(std::process::Stdio::null()).status();
        }
    }
}

impl ContextEngine for Probed {
    fn create(ctx: EngineContext<'_>) -> Result<Self, EngineError> {
        let config: serde_json::Value = serde_json::from_str(ctx.config_json().as_str()).unwrap_or_default();
        let text = |key: &str| config[key].as_str().unwrap_or_default().to_owned();
        let state_dir = ctx.state_dir().as_str().to_owned();
        let engine = Probed { place: text("in"), what: text("do"), host: ctx.host().clone(), state_dir };
        std::fs::write(format!("{}/store", ctx.state_dir().as_str()), "kept").map_err(EngineError::failed)?;
        engine.reach("create")?;
        Ok(engine)
    }

    fn ingest(&self, _: &CallContext<'_>, _: IngestParams<'_>) -> Result<IngestResult, EngineError> {
        Ok(IngestResult::skipped())
    }

    fn assemble(&self, ctx: &CallContext<'_>, params: AssembleParams<'_>) -> Result<Assembly, EngineError> {
        self.reach("assemble")?;
        let left = ctx.remaining().is_some_and(|left| left < Duration::from_secs(60));
        self.host.log(LogLevel::INFO, &format!("{} messages, hurried: {left}", params.messages().len()));
        let mut plan = Assembly::new();
        plan.keep(0..params.messages().len());
        Ok(plan)
    }

    fn compact(&self, ctx: &CallContext<'_>, params: CompactParams<'_>) -> Result<CompactResult, EngineError> {
        ctx.delegate_compaction(params)
    }

    fn dispose(&self, _: &CallContext<'_>, _: DisposeParams<'_>) -> Result<Acknowledged, EngineError> {
        self.reach("dispose")?;
        Ok(Acknowledged::default())
    }
}

impl EngineTools for Probed {
    fn list_tools(&self, _: &CallContext<'_>, _: ToolsListParams<'_>) -> Result<String, EngineError> {
        self.reach("tools")?;
        let named = |name: &str| serde_json::json!({ "name": name });
        Ok(serde_json::json!([named("find"), named("find it")]).to_string())
    }

    fn call_tool(&self, _: &CallContext<'_>, _: ToolCallParams<'_>) -> Result<String, EngineError> {
        Err(EngineError::unsupported("call_tool"))
    }
}

impl Drop for Probed {
    fn drop(&mut self) {
        let _ = self.reach("drop");
    }
}

const FIELDS: RecordFields = RecordFields {
    id: "probed",
    name: "Probed",
    version: env!("CARGO_PKG_VERSION"),
    owns_compaction: false,
    accepted_host_params: None,
    turn_maintenance_mode: None,
    current_turn_fence: None,
    turn_advancement_idempotency: None,
    host_requirements: &[],
    extensions: &["tools/1"],
    panic: "unwind",
};

#[used]
#[cfg_attr(target_vendor = "apple", unsafe(link_section = "__DATA,__ctxeng"))]
#[cfg_attr(not(target_vendor = "apple"), unsafe(link_section = ".ctxeng"))]
static RECORD: [u8; record::encoded_len(&FIELDS)] = record::encode(&FIELDS);

const FRAMED: [u8; record::encoded_len(&FIELDS)] = record::encode(&FIELDS);

struct Exported;

impl Export for Exported {
    type Engine = Probed;
    const RECORD: &'static str = record::json_of(&FRAMED);
    const MODULE_PATH: &'static str = module_path!();
    const KNOWN_HOST_PARAMS: Option<&'static [&'static str]> = None;
    const TOOLS: Option<ToolsV1> = Some(tools_v1::<Probed>());
}

/// What the macro would have exported.
static SOUND: LibHeader = header::<Exported>();

#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "abi_stable fixes the symbol's name")]
pub static _1as_0lib_1header_0root_bmodule_bloader: LibHeader =
    // SAFETY: `root_module` returns exactly the module type named here.
    unsafe { LibHeader::from_constructor::<EngineModule>(root_module, CheckTypeLayout::Yes) };

extern "C" fn root_module() -> RootModuleResult {
    __call_root_module_loader(|| {
        let sound = SOUND.init_root_module::<EngineModule>().expect("its own module");
        EngineModuleFields { record: sound.record(), create: sound.create(), extension }.leak_into_prefix()
    })
}

extern "C" fn extension(id: RStr<'_>, version: u32) -> ROption<Extension_NE> {
    let asked = std::env::var("CONTEXT_ENGINE_TEST_EXTENSION").unwrap_or_default();
    if asked == "none" {
        return RNone;
    }
    let length = asked.parse().ok();
    match Exported::TOOLS {
        Some(tools) if (id.as_str(), version) == ("tools", 1) || Some(id.len()) == length => {
            RSome(NonExhaustive::new(Extension::Tools1(tools)))
        }
        _ => RNone,
    }
}
