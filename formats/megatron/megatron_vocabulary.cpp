#include <algorithm>
#include <array>

#include "formats/megatron/flag_rows.hpp"
#include "formats/megatron/tokenizer_sizes.hpp"

// Rows of the table of words.

namespace mgplan::formats {
namespace {

/// The size that the command does not give, from the tokenizer that it names; says so.
std::optional<std::int64_t> tokenizers_size(FlagReader& flags, Job& job, const std::string& folder) {
    TokenizerFlags tokenizer{flags.raw("--tokenizer-type"), flags.raw("--tokenizer-model"), flags.raw("--vocab-file")};
    if (tokenizer.model.empty()) tokenizer.model = flags.raw("--tokenizer-name-or-path");
    const auto found = find_vocabulary(tokenizer, folder);
    if (!found) return std::nullopt;
    const std::int64_t extra = flags.integer_or("--vocab-extra-ids", 0, 0, ModelLimits::vocab);
    job.assumptions.push_back(fmt::format("vocabulary of {} ({})", counted(found->tokens + extra, "token"), found->source));
    return found->tokens + extra;
}

/// The table has --padded-vocab-size rows, whatever else is said (argument_utils.py, gpt_config_from_args). `tokens`: where they are known;
/// else each row is one.
std::int64_t padded_vocabulary(FlagReader& flags, ModelSpec& model, std::optional<std::int64_t> tokens) {
    const auto rows = flags.integer("--padded-vocab-size", 1, ModelLimits::vocab);
    if (!rows) return tokens.value_or(1);
    model.padded_rows = *rows;
    flags.idle("--make-vocab-size-divisible-by");
    if (tokens && *tokens > *rows)
        flags.problem("--padded-vocab-size = {} is less than the {} tokens of --vocab-size, which have a row each; use {} or more", *rows,
                      *tokens, *tokens);
    return tokens ? std::min(*tokens, *rows) : *rows;
}

void read_vocabulary(FlagReader& flags, Job& job) {
    ModelSpec& model = job.model;
    const MegatronSurroundings& surroundings = flags.surroundings();
    // build_tokenizer.py then leaves args.padded_vocab_size at None, by which training.py, num_floating_point_operations, multiplies.
    if (flags.has("--no-pad-vocab-size") && !flags.has("--padded-vocab-size")) {
        // checkpointing.py, load_args_from_checkpoint, sets it from the checkpoint's arguments where the command does not.
        if (flags.has("--use-checkpoint-args") && (flags.has("--load") || flags.has("--pretrained-checkpoint")))
            flags.missing_fact(
                "--no-pad-vocab-size with --use-checkpoint-args, by which the checkpoint tells the number of rows of the embedding; give "
                "it "
                "as --padded-vocab-size N");
        else
            flags.problem(
                "--no-pad-vocab-size without --padded-vocab-size, at which Megatron-LM stops in its first step; give the number of rows of "
                "the "
                "embedding as --padded-vocab-size N, or remove --no-pad-vocab-size");
    }
    const auto ignore = [&](std::initializer_list<const char*> others) {
        for (const auto* flag : others) flags.idle(flag);
    };
    const auto ignore_tokenizer = [&] {
        ignore({"--tokenizer-type", "--tokenizer-model", "--tokenizer-name-or-path", "--vocab-file", "--vocab-extra-ids"});
    };
    if (surroundings.vocab) {
        model.vocab = padded_vocabulary(flags, model, surroundings.vocab);
        ignore({"--vocab-size"});
        ignore_tokenizer();
    } else if (flags.has("--vocab-size")) {
        model.vocab = padded_vocabulary(flags, model, flags.integer_or("--vocab-size", 1, 1, ModelLimits::vocab));
        ignore_tokenizer();
    } else if (flags.has("--padded-vocab-size")) {
        model.vocab = padded_vocabulary(flags, model, std::nullopt);
        ignore_tokenizer();
    } else if (const auto size = tokenizers_size(flags, job, surroundings.folder)) {
        model.vocab = std::clamp<std::int64_t>(*size, 1, ModelLimits::vocab);
    } else if (surroundings.vocab_if_missing) {
        model.vocab = *surroundings.vocab_if_missing;
    } else {
        flags.missing_fact(
            "--vocab-size is missing; Megatron-LM reads it from the tokenizer, which is neither known nor available, so give its size, as "
            "--vocab-size N with --megatron-args FILE too (GPT-2: 50257, Llama 3: 128256)");
        model.vocab = 1;
    }
}

void write_vocabulary(FlagWriter& out, const Job& job) {
    out.integer("vocab-size", job.model.vocab);
    if (job.model.padded_rows > 0) out.integer("padded-vocab-size", job.model.padded_rows);
}

constexpr std::array kVocabularyFlags{
    FlagRow{"vocab-size= padded-vocab-size= no-pad-vocab-size", Both{read_vocabulary, write_vocabulary}},
    FlagRow{"make-vocab-size-divisible-by", Whole{MGPLAN_FIELD(model.vocab_divisor), 128, 1, ModelLimits::vocab}, Written::always},
};

}  // namespace

constinit const FlagTopic kVocabularyTopic{kVocabularyFlags};

}  // namespace mgplan::formats
