//! What providers were seen to write, and what it means.

use super::*;
use ModelErrorKind::{Failed, Refused, RequestTooLarge, Timeout, Unauthorized, Unavailable};

#[track_caller]
fn check(cases: &[(u16, &str, ModelErrorKind)]) {
    for (status, text, expected) in cases {
        let error =
            ProviderError { status: Some(*status).filter(|status| *status > 0), text, ..ProviderError::default() };
        assert_eq!(error.kind(), *expected, "{status} {text}");
    }
}

fn over(observed: u64) -> ModelErrorKind {
    ModelErrorKind::Overflow { observed: Some(observed).filter(|n| *n > 0) }
}

fn limited(seconds: f64) -> ModelErrorKind {
    ModelErrorKind::RateLimited { retry_after: Some(Duration::from_secs_f64(seconds)).filter(|wait| !wait.is_zero()) }
}

#[test]
fn an_overflow_is_known_in_every_providers_words() {
    check(&[
        // OpenAI
        (
            400,
            "This model's maximum context length is 4097 tokens. However, you requested 4500 tokens (500 in the messages, 4000 in the completion). Please reduce the length of the messages or completion.",
            over(4500),
        ),
        (
            400,
            "This model's maximum context length is 8192 tokens. However, your messages resulted in 8545 tokens. Please reduce the length of the messages.",
            over(8545),
        ),
        (400, "Your input exceeds the context window of this model. Please adjust your input and try again.", over(0)),
        (400, "context_length_exceeded", over(0)),
        // Anthropic
        (400, "prompt is too long: 213462 tokens > 200000 maximum", over(213_462)),
        (
            400,
            "input length and `max_tokens` exceed context limit: 199211 + 20000 > 200000, decrease input length or `max_tokens` and try again",
            over(219_211),
        ),
        (429, "Extra usage is required for long context requests.", over(0)),
        // Gemini
        (
            400,
            "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
            over(1_196_265),
        ),
        (
            400,
            "The input token count (1,196,265) exceeds the maximum number of tokens allowed (1,048,576).",
            over(1_196_265),
        ),
        (400, "input exceeds the maximum number of tokens", over(0)),
        // Bedrock
        (400, "ValidationException: Input is too long for requested model.", over(0)),
        (
            400,
            "ValidationException: Too many input tokens. Max input tokens: 8192, request input token count: 9279",
            over(9279),
        ),
        (
            400,
            "Malformed input request: expected maxLength: 50000, actual: 52611, please reformat your input and try again.",
            over(0),
        ),
        (
            400,
            "The model returned the following errors: input length and max_tokens exceed context window (i.e 190000 + 16000 > 200000)",
            over(206_000),
        ),
        (
            400,
            "The model returned the following errors: prompt is too long: 208310 tokens > 200000 maximum",
            over(208_310),
        ),
        // Mistral
        (
            400,
            "Prompt contains 300735 tokens and 0 draft tokens, too large for model with 131072 maximum context length",
            over(300_735),
        ),
        // Ollama
        (500, "prompt too long; exceeded max context length by 4821 tokens", over(0)),
        (400, "ollama error: context length exceeded", over(0)),
        // llama.cpp
        (400, "request (9412 tokens) exceeds the available context size (8192 tokens), try increasing it", over(9412)),
        (
            400,
            r#"the request exceeds the available context size. try increasing the context size or enable context shift {"n_prompt_tokens":13392,"n_ctx":8192}"#,
            over(13_392),
        ),
        (500, "Context size has been exceeded.", over(0)),
        // LM Studio
        (
            400,
            "Trying to keep the first 9234 tokens when context the overflows. However, the number of tokens to keep from the initial prompt is greater than the context length.",
            over(0),
        ),
        // vLLM
        (
            400,
            "This model's maximum context length is 4096 tokens. However, you requested 5010 tokens (4010 in the messages, 1000 in the completion).",
            over(5010),
        ),
        (
            400,
            "'max_tokens' or 'max_completion_tokens' is too large: 2000. This model's maximum context length is 4096 tokens and your request has 2104 input tokens (2000 > 4096 - 2104).",
            over(4104),
        ),
        (400, "The decoder prompt (length 40123) is longer than the maximum model length of 32768.", over(40_123)),
        (
            400,
            "This model's maximum context length is 32768 tokens. However, you requested 0 output tokens and your prompt contains at least 32769 input tokens, for a total of at least 32769 tokens.",
            over(32_769),
        ),
        // OpenRouter
        (
            400,
            "This endpoint's maximum context length is 128000 tokens. However, you requested about 140543 tokens (132351 of text input, 8192 in the output).",
            over(140_543),
        ),
        // Azure
        (
            400,
            "context_length_exceeded This model's maximum context length is 128,000 tokens. However, your messages resulted in 128.5k tokens.",
            over(128_500),
        ),
        // and others
        (400, "This model's maximum prompt length is 131072 but the request contains 537812 tokens.", over(537_812)),
        (400, "Invalid request: Your request exceeded model token limit: 262144 (requested: 291351)", over(291_351)),
        (400, "prompt token count of 300000 exceeds the limit of 262144", over(300_000)),
        (400, "The input (516368 tokens) is longer than the model's context length (262144 tokens).", over(516_368)),
        (
            422,
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens and 20 `max_new_tokens`",
            over(5020),
        ),
        (400, "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 98304]", over(0)),
        (400, "invalid params, context window exceeds limit", over(0)),
        (413, "Please reduce the length of the messages or completion. context_length_exceeded", over(0)),
        (0, "model_context_window_exceeded", over(0)),
    ]);
}

#[test]
fn a_limit_per_minute_was_taken_for_an_overflow() {
    check(&[
        (
            429,
            "Rate limit reached for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000. Please try again in 2.5s.",
            limited(2.5),
        ),
        (
            413,
            "Request too large for model `llama-3.3-70b` in organization `o` on tokens per minute (TPM): Limit 6000, Requested 5800, please reduce your message size and try again.",
            limited(0.0),
        ),
        (400, "ThrottlingException: Too many tokens, please wait before trying again.", limited(0.0)),
        (
            429,
            "This request would exceed your organization's rate limit of 40,000 input tokens per minute",
            limited(0.0),
        ),
        (
            429,
            "You exceeded your current quota, please check your plan and billing details. Quota exceeded for metric: input_token_count, limit: 250000 Please retry in 34.07s. RESOURCE_EXHAUSTED",
            limited(34.07),
        ),
        (429, "", limited(0.0)),
        // Over the whole limit: a wait does not help, and the limit is not the window.
        (
            429,
            "Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Requested 34307. The input or output tokens must be reduced in order to run successfully.",
            RequestTooLarge,
        ),
        (
            413,
            "Request too large for model `m` in organization `o` on tokens per minute (TPM): Limit 6000, Requested 8123, please reduce your message size and try again.",
            RequestTooLarge,
        ),
    ]);
}

#[test]
fn what_speaks_of_sizes_and_is_no_overflow() {
    check(&[
        (413, "request_too_large: Request exceeds the maximum size", RequestTooLarge),
        (413, "<html><head><title>413 Request Entity Too Large</title></head></html>", RequestTooLarge),
        (400, "Request payload size exceeds the limit: 20971520 bytes.", RequestTooLarge),
        (413, "", RequestTooLarge),
        (400, "Model context window too small (4096 tokens). Minimum is 16000.", Failed),
        (400, "Reasoning is mandatory for this endpoint and cannot be disabled.", Failed),
        (400, "max_tokens is too large: 100000. This model supports at most 16384 completion tokens.", Failed),
        (400, "messages.3.content.0.image: image exceeds 5 MB maximum: 5316852 bytes > 5242880 bytes", Failed),
        (
            400,
            "Invalid 'messages[2].tool_calls[0].id': string too long. Expected a string with maximum length 40.",
            Failed,
        ),
    ]);
}

#[test]
fn what_no_wait_and_no_compaction_helps() {
    check(&[
        (
            429,
            "insufficient_quota You exceeded your current quota, please check your plan and billing details.",
            Unauthorized,
        ),
        (429, "You exceeded your current quota, please check your plan and billing details.", Unauthorized),
        (400, "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing", Unauthorized),
        (
            402,
            "This request requires more credits, or fewer max_tokens. You requested up to 65536 tokens",
            Unauthorized,
        ),
        (402, "Insufficient Balance", Unauthorized),
        (401, "Incorrect API key provided: sk-abc***. ", Unauthorized),
        (400, "API key not valid. Please pass a valid API key.", Unauthorized),
        (403, "Country, region, or territory not supported", Unauthorized),
        (404, "The model `gpt-9` does not exist or you do not have access to it.", Failed),
        (400, "Invalid schema for function 'read'", Failed),
        (501, "Not Implemented", Failed),
        (0, "something new", Failed),
    ]);
}

#[test]
fn refusals_of_the_prompt() {
    check(&[
        (
            400,
            "content_filter The response was filtered due to the prompt triggering Azure OpenAI's content management policy.",
            Refused,
        ),
        (400, "invalid_prompt: Your prompt was flagged as potentially violating our usage policy.", Refused),
        (403, "openai/gpt-4o requires moderation on OpenRouter. Your input was flagged for \"violence\".", Refused),
        (400, "Output blocked by content filtering policy", Refused),
        (400, "Content Exists Risk", Refused),
        (400, "<400> InternalError.Algo.DataInspectionFailed data_inspection_failed", Refused),
    ]);
}

#[test]
fn what_passes() {
    check(&[
        (500, "The server had an error while processing your request. Sorry about that!", Unavailable),
        (502, "<html>502 Bad Gateway</html>", Unavailable),
        (503, "The model is overloaded. Please try again later.", Unavailable),
        (529, "overloaded_error: Overloaded", Unavailable),
        (0, "Overloaded", Unavailable),
        (0, "server_error", Unavailable),
        (408, "Request timed out", Timeout),
        (504, "upstream request timeout", Timeout),
        (0, "Request timed out.", Timeout),
    ]);
    for (kind, passing) in
        [(limited(0.0), true), (Unavailable, true), (Timeout, true), (over(1), false), (Failed, false)]
    {
        assert_eq!(is_passing(kind), passing, "{kind:?}");
    }
}

#[test]
fn a_header_wins_over_the_words() {
    let retry_after = Some(Duration::from_secs(7));
    let text = "Rate limit reached. Please try again in 2s.";
    let error = ProviderError { status: Some(429), text, retry_after, ..ProviderError::default() };
    assert_eq!(error.kind(), ModelErrorKind::RateLimited { retry_after });
}

#[test]
fn a_code_counts_as_much_as_the_words() {
    let error = ProviderError {
        status: Some(400),
        code: "exceed_context_size_error",
        text: "too much",
        ..ProviderError::default()
    };
    assert_eq!(error.kind(), ModelErrorKind::Overflow { observed: None });
}
