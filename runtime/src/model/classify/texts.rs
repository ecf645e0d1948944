//! The words of providers, lower case. A row holds when all its parts occur.
//!
//! Each row was written by the provider named beside it; where none is named, several write it.

/// Parts that occur together.
pub(super) type Row = &'static [&'static str];

/// Whether a row of the table holds for these words, which are lower case.
pub(super) fn any(table: &[Row], words: &str) -> bool {
    table.iter().any(|row| row.iter().all(|part| words.contains(part)))
}

/// The account has nothing left, in a provider's own code: no wait helps.
pub(super) const ACCOUNT: &[Row] = &[
    &["insufficient_quota"],   // OpenAI, Azure
    &["billing_not_active"],   // OpenAI
    &["billing_hard_limit"],   // OpenAI
    &["insufficient_balance"], // Moonshot
];

/// Anthropic sells long prompts as a tier of its own and answers 429; a shorter prompt is what helps.
pub(super) const LONG_CONTEXT_TIER: &[Row] = &[&["extra usage is required for long context"]];

/// Too much in too short a time.
pub(super) const RATE: &[Row] = &[
    &["rate limit"],
    &["rate_limit"],
    &["ratelimit"],
    &["rate-limit"],
    &["too many requests"],
    &["too_many_requests"],
    &["tokens per min"],
    &["(tpm)"],
    &["tokens per day"],
    &["requests per min"],
    &["requests per day"],
    &["throttl"],                              // Bedrock
    &["too many tokens, please wait"],         // Bedrock
    &["resource_exhausted"],                   // Gemini
    &["quota exceeded for"],                   // Gemini
    &["exceeded your current quota", "retry"], // Gemini
    &["service tier capacity exceeded"],       // Mistral
    &["engine_overloaded"],                    // Moonshot
];

/// Of those, the ones whose limit a single request can be over.
pub(super) const PER_MINUTE: &[Row] = &[&["tokens per min"], &["(tpm)"], &["tokens per day"]];

/// The account has nothing left, in words.
pub(super) const BILLING: &[Row] = &[
    &["exceeded your current quota"],
    &["credit balance is too low"], // Anthropic
    &["insufficient credits"],      // OpenRouter
    &["requires more credits"],     // OpenRouter
    &["insufficient balance"],      // DeepSeek
    &["payment required"],
    &["check your plan and billing"],
];

/// What speaks of the window or of sizes, and which no shorter prompt changes.
pub(super) const NO_OVERFLOW: &[Row] = &[
    &["context window", "too small"],
    &["context window", "minimum is"],
    &["reasoning is mandatory"],
    &["reasoning is required"],
    &["requires reasoning"],
    &["reasoning", "cannot be disabled"],
];

/// The prompt, or prompt and reply together, are over the window.
pub(super) const OVERFLOW: &[Row] = &[
    &["context_length_exceeded"],                             // OpenAI, Azure, Groq, OpenRouter
    &["context length exceeded"],                             // Ollama
    &["exceeds the context window"],                          // OpenAI
    &["maximum context length"],                              // OpenAI, vLLM, Mistral, OpenRouter, DeepSeek
    &["max context length"],                                  // Ollama, vLLM
    &["maximum prompt length"],                               // xAI
    &["reduce the length of the messages"],                   // OpenAI, Groq
    &["reduce the length of the prompt"],                     // Bedrock
    &["prompt is too long"],                                  // Anthropic
    &["exceed context limit"],                                // Anthropic
    &["exceed context window"],                               // Bedrock
    &["model_context_window_exceeded"],                       // z.ai, Anthropic
    &["token count", "exceeds the maximum number of tokens"], // Gemini
    &["input exceeds the maximum number of tokens"],          // Gemini
    &["input is too long"],                                   // Bedrock
    &["too many input tokens"],                               // Bedrock
    &["expected maxlength", "actual"],                        // Bedrock, counted in characters
    &["too large for model with"],                            // Mistral
    &["prompt too long"],                                     // Ollama
    &["exceeds maximum context"],                             // Ollama
    &["exceed_context_size_error"],                           // llama.cpp
    &["exceeds the available context size"],                  // llama.cpp
    &["context size has been exceeded"],                      // LM Studio
    &["tokens to keep", "greater than the context length"],   // LM Studio
    &["longer than the maximum model length"],                // vLLM
    &["max_model_len"],                                       // vLLM
    &["longer than the model's context length"],              // SGLang
    &["`inputs` tokens + `max_new_tokens` must be"],          // Text Generation Inference
    &["token count of", "exceeds the limit of"],              // Copilot
    &["exceeded model token limit"],                          // Moonshot
    &["context window exceeds limit"],                        // MiniMax
    &["range of input length should be"],                     // DashScope
    &["prompt exceeds max length"],                           // z.ai
    &["too many tokens", "the prompt cannot exceed"],         // Cohere
    &["but the configured context size is"],                  // llama.cpp's forks
];

/// The prompt's content is refused.
pub(super) const REFUSAL: &[Row] = &[
    &["content_filter"],                      // Azure
    &["responsibleaipolicyviolation"],        // Azure
    &["content management policy"],           // Azure
    &["content_policy_violation"],            // OpenAI
    &["flagged", "usage polic"],              // OpenAI
    &["your input was flagged"],              // OpenRouter
    &["requires moderation", "flagged"],      // OpenRouter
    &["safety system"],                       // OpenAI
    &["prohibited_content"],                  // Gemini
    &["blocked", "safety"],                   // Gemini
    &["data_inspection_failed"],              // DashScope
    &["output blocked by content filtering"], // Anthropic
    &["content exists risk"],                 // DeepSeek
    &["guardrail", "intervened"],             // Bedrock
];

/// Too many bytes, whatever the tokens.
pub(super) const TOO_LARGE: &[Row] = &[
    &["request_too_large"], // Anthropic
    &["request exceeds the maximum size"],
    &["request entity too large"],
    &["request body too large"],
    &["payload too large"],
    &["payload size exceeds"], // Gemini
];

/// The key is not taken.
pub(super) const KEY: &[Row] = &[
    &["invalid_api_key"],
    &["invalid api key"],
    &["incorrect api key"],
    &["api key not valid"], // Gemini
    &["authentication_error"],
    &["unauthorized"],
    &["permission_denied"],
];

/// No answer in time, where no status says so.
pub(super) const TIMEOUT: &[Row] = &[&["timed out"], &["timeout"], &["deadline exceeded"], &["deadline_exceeded"]];

/// Down, where no status says so.
pub(super) const DOWN: &[Row] = &[
    &["overloaded"],
    &["unavailable"],
    &["bad gateway"],
    &["internal server error"],
    &["internal_server_error"],
    &["server_error"],
    &["try again later"],
];
