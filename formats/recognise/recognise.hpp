#pragma once
// Recognises texts that no reader here reads: the framework, the kind of job, and the shortest way to an answer. Looks at names of
// programs, keys and sections; reads no values but those that the way to an answer repeats.

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace mgplan::formats {

/// A file or command of a known framework.
struct Recognised {
    std::string framework;  ///< "torchtitan"
    std::string form;       ///< "TOML configuration"
    std::string job;        ///< "LoRA", "GRPO"; "" where the text shows none, or plain pretraining
    std::string version;    ///< "4"; "" where the text does not show it
    std::string model;      ///< name of the model as the text has it: "Qwen/Qwen3-32B"; "" where it names none
    std::string adapters;   ///< as --lora takes them, "rank=16,alpha=32"; "" where the text shows none
    std::string layout;     ///< options of mgplan with the text's own numbers: "--tp 8 --pp 2"; "" where it states none
    std::string reason;     ///< why the text is not enough, as the end of a sentence; "" where the reader alone is missing
    bool states_layout;     ///< its layout is read: the model alone has to be named
};

/// Returns nothing for a text of no known framework. Reads at most the first 256 KiB.
[[nodiscard]] std::optional<Recognised> recognise(std::string_view text);

/// One line: framework, kind of job, and a command of mgplan that answers for the same model and layout.
[[nodiscard]] std::string refusal_of(const Recognised& found, std::string_view where);

/// The kind of network that a training script builds, as the end of a sentence ("an encoder (BERT)"), where it is no decoder-only language
/// model; "" for scripts of such models and for names that say nothing. The folder counts for scripts of general names ("train.py").
[[nodiscard]] std::string_view other_network_of_script(std::string_view path);

/// One row of the table: the text shows all signs of `all`, and one of `any` where there are some. Signs are separated by blanks. A sign is
/// a word of the text; "name=" is a key ("name:", "name =", "\"name\":"), "name*" the beginning of a word or key, "a+b" two words in
/// succession, "[name]" a section.
struct FrameworkSigns {
    std::string_view framework;
    std::string_view form;
    std::string_view all;
    std::string_view any;
    std::string_view reason = "";
    bool states_layout = false;
};
/// The first row that fits counts.
[[nodiscard]] std::span<const FrameworkSigns> framework_table();

}  // namespace mgplan::formats
