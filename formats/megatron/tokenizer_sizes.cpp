#include "formats/megatron/tokenizer_sizes.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "plan/text/errors.hpp"
#include "plan/text/json_reader.hpp"
#include "plan/text/text.hpp"

namespace mgplan::formats {
namespace {

namespace fs = std::filesystem;
using TokenizerJson = nlohmann::json;

constexpr std::size_t kLargestFile = std::size_t{64} << 20U;

// Sizes with special tokens, as len(tokenizer) of transformers counts them; a model's config.json often has a padded number instead.
constexpr std::array kKnown{
    KnownTokenizer{"gpt2", "GPT-2", 50257, "vocab.json of openai-community/gpt2"},
    KnownTokenizer{"llama-2", "Llama 2", 32000, "tokenizer.model of meta-llama/Llama-2-7b-hf"},
    KnownTokenizer{"llama2", "Llama 2", 32000, "tokenizer.model of meta-llama/Llama-2-7b-hf"},
    KnownTokenizer{"llama-3", "Llama 3", 128256, "tokenizer.json of meta-llama/Meta-Llama-3-8B: 128,000 and 256 special tokens"},
    KnownTokenizer{"llama3", "Llama 3", 128256, "tokenizer.json of meta-llama/Meta-Llama-3-8B: 128,000 and 256 special tokens"},
    KnownTokenizer{"meta-llama-3", "Llama 3", 128256, "tokenizer.json of meta-llama/Meta-Llama-3-8B: 128,000 and 256 special tokens"},
    KnownTokenizer{"mistral-7b-v0.1", "Mistral 7B", 32000, "tokenizer.model of mistralai/Mistral-7B-v0.1"},
    KnownTokenizer{"mistral-7b-v0.3", "Mistral 7B v0.3", 32768, "tokenizer.json of mistralai/Mistral-7B-v0.3"},
    KnownTokenizer{"mixtral-8x7b", "Mixtral", 32000, "tokenizer.model of mistralai/Mixtral-8x7B-v0.1"},
    KnownTokenizer{"mixtral-8x22b-v0.1", "Mixtral 8x22B", 32000, "tokenizer.model of mistralai/Mixtral-8x22B-v0.1"},
    KnownTokenizer{"qwen2-", "Qwen2", 151646, "tokenizer.json of Qwen/Qwen2-7B: 151,643 and 3 added tokens"},
    KnownTokenizer{"qwen2.5-", "Qwen2.5", 151665, "tokenizer.json of Qwen/Qwen2.5-7B: 151,643 and 22 added tokens"},
    KnownTokenizer{"qwen3-", "Qwen3", 151669, "tokenizer.json of Qwen/Qwen3-8B: 151,643 and 26 added tokens"},
    KnownTokenizer{"deepseek-v3", "DeepSeek-V3", 128815, "tokenizer.json of deepseek-ai/DeepSeek-V3: 128,000 and 815 added tokens"},
    KnownTokenizer{"nemotron-h-", "Nemotron-H", 131072, "vocab_size of nvidia/Nemotron-H-8B-Base-8K"},
    KnownTokenizer{"nvidia-nemotron-nano-", "Nemotron Nano 2", 131072, "vocab_size of nvidia/NVIDIA-Nemotron-Nano-9B-v2"},
    KnownTokenizer{"nvidia-nemotron-3-nano-", "Nemotron 3", 131072, "vocab_size of nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"},
    KnownTokenizer{"nvidia-nemotron-3-super-", "Nemotron 3", 131072, "vocab_size of nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16"},
    KnownTokenizer{"nvidia-nemotron-3.5-lightning-", "Nemotron 3.5", 131072, "vocab_size of nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"},
    KnownTokenizer{"gpt-neox-20b", "GPT-NeoX", 50277, "tokenizer.json of EleutherAI/gpt-neox-20b"},
};

std::string last_part(const std::string& path) {
    std::string trimmed = path;
    while (trimmed.size() > 1 && trimmed.ends_with('/')) trimmed.pop_back();
    const auto slash = trimmed.rfind('/');
    return slash == std::string::npos ? trimmed : trimmed.substr(slash + 1);
}

std::optional<std::string> file_at_hand(const std::string& named, const std::string& folder) {
    if (folder.empty() || named.empty()) return std::nullopt;
    const fs::path given(named), here(folder);
    for (const fs::path& candidate :
         {here / given, here / given / "tokenizer.json", here / given / "tokenizer.model", here / last_part(named)}) {
        std::error_code failed;
        if (!fs::is_regular_file(candidate, failed)) continue;
        const auto size = fs::file_size(candidate, failed);
        if (failed || size > kLargestFile) return std::nullopt;  // too long: the name has to give it
        std::string bytes(size, '\0');
        std::ifstream file(candidate, std::ios::binary);
        file.read(bytes.data(), static_cast<std::streamsize>(size));
        bytes.resize(static_cast<std::size_t>(file.gcount()));
        return bytes;
    }
    return std::nullopt;
}

std::optional<std::int64_t> size_of_file(const std::string& bytes) {
    const auto first = bytes.find_first_not_of(" \t\r\n");
    if (first == std::string::npos) return std::nullopt;
    return bytes[first] == '{' ? json_vocabulary_size(bytes) : sentencepiece_size(bytes);
}

const KnownTokenizer* known_by_name(const std::string& path) {
    const std::string name = lower_case(last_part(path));
    const KnownTokenizer* found = nullptr;
    for (const auto& one : kKnown) {
        if (name.starts_with(one.pattern) && (found == nullptr || one.pattern.size() > found->pattern.size())) found = &one;
    }
    return found;
}

/// A protocol buffer's variable-length integer; nothing where it does not end.
std::optional<std::uint64_t> varint(std::string_view bytes, std::size_t& at) {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && at < bytes.size(); shift += 7) {
        const auto byte = static_cast<unsigned char>(bytes[at++]);
        value |= static_cast<std::uint64_t>(byte & 0x7FU) << shift;
        if ((byte & 0x80U) == 0) return value;
    }
    return std::nullopt;
}

}  // namespace

std::span<const KnownTokenizer> known_tokenizers() {
    return kKnown;
}

std::optional<std::int64_t> sentencepiece_size(std::string_view bytes) {
    constexpr std::uint64_t kPieces = 1;
    std::int64_t pieces = 0;
    for (std::size_t at = 0; at < bytes.size();) {
        const auto tag = varint(bytes, at);
        if (!tag) return std::nullopt;
        std::uint64_t skipped = 0;
        switch (*tag & 7U) {
            case 0:
                if (!varint(bytes, at)) return std::nullopt;
                break;
            case 1:
                skipped = 8;
                break;
            case 2: {
                const auto length = varint(bytes, at);
                if (!length) return std::nullopt;
                skipped = *length;
                if (*tag >> 3U == kPieces) ++pieces;
                break;
            }
            case 5:
                skipped = 4;
                break;
            default:
                return std::nullopt;
        }
        if (skipped > bytes.size() - at) return std::nullopt;
        at += skipped;
    }
    return pieces > 0 ? std::optional(pieces) : std::nullopt;
}

std::optional<std::int64_t> json_vocabulary_size(std::string_view text) {
    TokenizerJson json;
    try {
        json = parse_sorted_json(text, "tokenizer");
    } catch (const ConfigError&) {
        return std::nullopt;
    }
    if (!json.is_object()) return std::nullopt;
    std::int64_t size = 0;
    const auto take = [&](const TokenizerJson& id) {
        if (id.is_number_integer() && id.get<std::int64_t>() >= 0 && id.get<std::int64_t>() < (std::int64_t{1} << 31))
            size = std::max(size, id.get<std::int64_t>() + 1);
    };
    const auto model = json.find("model");
    const bool whole = model != json.end() && model->is_object() && model->contains("vocab");
    const TokenizerJson& entries = whole ? model->at("vocab") : json;
    if (entries.is_object()) {
        for (const auto& id : entries) take(id);
    } else if (entries.is_array()) {
        size = static_cast<std::int64_t>(entries.size());  // Unigram: pairs of piece and score
    }
    if (whole && json.contains("added_tokens") && json["added_tokens"].is_array()) {
        for (const auto& token : json["added_tokens"]) {
            if (token.is_object() && token.contains("id")) take(token["id"]);
        }
    }
    return size > 0 ? std::optional(size) : std::nullopt;
}

std::optional<Vocabulary> find_vocabulary(const TokenizerFlags& flags, const std::string& folder) {
    for (const auto& [flag, named] : {std::pair<std::string_view, const std::string&>{"--tokenizer-model", flags.model},
                                      std::pair<std::string_view, const std::string&>{"--vocab-file", flags.vocab_file}}) {
        if (named.empty()) continue;
        if (const auto bytes = file_at_hand(named, folder)) {
            if (const auto tokens = size_of_file(*bytes)) return Vocabulary{*tokens, fmt::format("read from {} {}", flag, named)};
        }
        if (const auto* known = known_by_name(named))
            return Vocabulary{known->tokens, fmt::format("tokenizer of {}, by {} {}", known->name, flag, named)};
    }
    // Names of tokenizers that forks give as a type: Llama2Tokenizer alone says nothing of its file.
    if (flags.type == "Llama3Tokenizer")
        return Vocabulary{known_by_name("llama-3")->tokens, "tokenizer of Llama 3, by --tokenizer-type Llama3Tokenizer"};
    return std::nullopt;
}

}  // namespace mgplan::formats
