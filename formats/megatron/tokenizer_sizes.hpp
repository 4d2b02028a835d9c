#pragma once
// Number of tokens of a Megatron-LM command's tokenizer: from its files if they are available, else from its name.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace mgplan::formats {

/// The values of a command's flags; "" where the flag is missing.
struct TokenizerFlags {
    std::string type;        ///< --tokenizer-type
    std::string model;       ///< --tokenizer-model: a file, a folder or a name on the Hugging Face hub
    std::string vocab_file;  ///< --vocab-file
};

struct Vocabulary {
    std::int64_t tokens;
    std::string source;  ///< in words: "tokenizer of GPT-2, by --vocab-file gpt2-vocab.json"
};

/// A tokenizer that commands name.
struct KnownTokenizer {
    std::string_view pattern;  ///< beginning, in lower case, of the last part of the name
    std::string_view name;     ///< in words
    std::int64_t tokens;       ///< len(tokenizer), which Megatron-LM takes (core/tokenizers/text/libraries), special tokens included
    std::string_view source;
};

/// All of them, with their sources; of several patterns that fit the longest counts.
[[nodiscard]] std::span<const KnownTokenizer> known_tokenizers();

/// The vocabulary before padding. Files are looked for as they are named within `folder` and next to the script under their own name; ""
/// reads none. Read are tokenizer.json (its vocabulary and added tokens), SentencePiece's .model (its pieces) and GPT-2's vocab.json (its
/// entries), each of at most 64 MiB. Nothing if neither file nor name gives it.
[[nodiscard]] std::optional<Vocabulary> find_vocabulary(const TokenizerFlags& flags, const std::string& folder);

/// The pieces of a SentencePiece model: entries of field 1 of its protocol buffer (sentencepiece_model.proto, ModelProto.pieces). Nothing
/// for bytes that are no such message.
[[nodiscard]] std::optional<std::int64_t> sentencepiece_size(std::string_view bytes);

/// Entries of a tokenizer.json with those that it adds, or of a vocab.json: the largest id and one. Nothing for other JSON.
[[nodiscard]] std::optional<std::int64_t> json_vocabulary_size(std::string_view text);

}  // namespace mgplan::formats
