#pragma once
// The command of a launch script that starts training: its words, and what of them is not sure.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/megatron/megatron_arguments.hpp"
#include "formats/megatron/shell_lists.hpp"
#include "formats/megatron/shell_words.hpp"

namespace mgplan::formats {

/// True if words describe a model: --num-layers, --hidden-size.
[[nodiscard]] bool names_model(const std::vector<std::string>& words);
/// Returns true if the words hold a size of a layout or batch (--tensor-model-parallel-size, --micro-batch-size, …) or name a recipe.
[[nodiscard]] bool names_layout(const std::vector<std::string>& words);

/// Looks for the command in the lines of a script: the last that runs a Python file with a model's flags.
class LaunchCommand {
public:
    using Words = std::vector<std::string>;

    /// All must outlive it.
    LaunchCommand(Variables& variables, FlagLists& lists, const std::string& where, bool layout_suffices)
        : variables_(variables), lists_(lists), where_(where), layout_suffices_(layout_suffices) {}

    /// Keeps the words after a Python file if they describe a model.
    void take(std::string_view line);
    /// The words of a simple command, with lists substituted; nothing where a quote stays open.
    [[nodiscard]] std::optional<Words> words_of(std::string_view line);

    [[nodiscard]] bool found() const { return counts(words_); }
    [[nodiscard]] const Words& words() const { return words_; }
    /// The Python file that takes the words, as the command names it.
    [[nodiscard]] const std::string& program() const { return program_; }
    /// The words in front of the program; nothing where one of them may hold more words than are known, or hangs on a condition.
    [[nodiscard]] const std::optional<Words>& launcher() const { return launcher_; }

private:
    struct Call {
        std::string program;
        Words words;
        std::optional<Words> launcher;
    };
    [[nodiscard]] std::optional<Call> arguments_in(const std::string& line);
    [[nodiscard]] std::optional<Words> launcher_words(const Words& words);
    [[nodiscard]] bool counts(const Words& words) const { return names_model(words) || (layout_suffices_ && names_layout(words)); }

    Variables& variables_;
    FlagLists& lists_;
    const std::string& where_;
    bool layout_suffices_;
    std::string program_;
    Words words_;
    std::optional<Words> launcher_;
};

/// The words with sentences on facts that only a run of the script would reveal. `not_sourced`: files that it sources and that are not
/// available. `model_is_given`: next to the script, so that a list of the model's flags is not missed.
[[nodiscard]] ArgumentWords with_doubts(std::vector<std::string> words, const Variables& variables, const FlagLists& lists,
                                        const std::vector<std::string>& not_sourced, const std::string& where, bool model_is_given);

}  // namespace mgplan::formats
