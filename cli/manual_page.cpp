#include "cli/manual_page.hpp"

#include <cstdint>

#include <fmt/core.h>

#include "plan/text/text.hpp"

namespace mgplan::cli {
namespace {

/// Text as troff prints it, in plain ASCII: backslashes and dashes escaped, no line that begins with a control character, other
/// characters by their code points.
std::string escaped(std::string_view text) {
    std::string out;
    bool line_starts = true;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (line_starts && (c == '.' || c == '\'')) out += "\\&";
        if (c == '\\') {
            out += "\\e";
        } else if (static_cast<unsigned char>(c) >= 0xC0) {  // the first byte of a character of several
            const auto first = static_cast<unsigned char>(c);
            const std::size_t more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
            std::uint32_t code = first & (0x3FU >> more);
            for (std::size_t k = 0; k < more && i + 1 < text.size(); ++k)
                code = code << 6 | (static_cast<unsigned char>(text[++i]) & 0x3FU);
            out += fmt::format("\\[u{:04X}]", code);
        } else if (c == '-') {
            out += "\\-";
        } else {
            out += c;
        }
        line_starts = c == '\n';
    }
    return out;
}

/// A macro's argument in double quotes.
std::string double_quoted(std::string_view text) {
    std::string out = "\"";
    for (const char c : escaped(text)) out += c == '"' ? std::string("\\(dq") : std::string(1, c);
    return out + "\"";
}

std::string option_text(const OptionDescription& option) {
    std::string text = fmt::format(".TP\n\\fB\\-\\-{}\\fR", escaped(option.name));
    if (!option.value.empty()) text += fmt::format(" \\fI{}\\fR", escaped(option.value));
    text += fmt::format("\n{}", escaped(option.help));
    if (!option.preset.empty()) text += fmt::format(" (default: {})", escaped(option.preset));
    return text + "\n";
}

std::string command_text(const CommandDescription& command) {
    std::string text = fmt::format(".SS {}\n", double_quoted("mgplan " + command.name));
    text += fmt::format("{}.\n.PP\n.nf\n", escaped(command.summary));
    for (const auto& line : command.usage) text += fmt::format("\\fBmgplan\\fR {}\n", escaped(line));
    text += ".fi\n";
    for (const auto& paragraph : split(command.purpose, '\n')) {
        if (!paragraph.empty()) text += fmt::format(".PP\n{}\n", escaped(paragraph));
    }
    for (const auto& word : command.positionals) text += fmt::format(".TP\n\\fI{}\\fR\n{}\n", escaped(word.name), escaped(word.help));
    for (const auto& group : command.groups) {
        text += fmt::format(".PP\n{}:\n", escaped(group.title));
        for (const auto& option : group.options) text += option_text(option);
    }
    return text;
}

struct Entry {
    std::string_view name;
    std::string_view meaning;
};

std::string entries(std::initializer_list<Entry> list) {
    std::string text;
    for (const auto& [name, meaning] : list) text += fmt::format(".TP\n\\fB{}\\fR\n{}\n", escaped(name), escaped(meaning));
    return text;
}

}  // namespace

std::string manual_page(const std::vector<CommandDescription>& commands, std::string_view version) {
    std::string text = fmt::format(".TH MGPLAN 1 \"\" {} \"User Commands\"\n", double_quoted(fmt::format("mgplan {}", version)));
    text += ".SH NAME\nmgplan \\- plan, predict and run layouts for training large language models\n";
    text +=
        ".SH SYNOPSIS\n.nf\n\\fBmgplan\\fR \\fB\\-\\-world\\fR \\fIN\\fR \\fB\\-\\-model\\fR \\fICFG\\fR [\\fIoptions\\fR]\n"
        "\\fBmgplan\\fR \\fICOMMAND\\fR [\\fIoptions\\fR]\n.fi\n";
    text += ".SH DESCRIPTION\n";
    text += escaped(
        "Which tensor, context, expert, data, pipeline and virtual pipeline layout should a model use on N GPUs, will it fit, how "
        "fast will it be, and why? mgplan enumerates and ranks the layouts, predicts memory and time of each, and runs a plan with "
        "the measurement beside the prediction. Results go to standard output, progress and warnings to standard error.");
    text += "\n.SH COMMANDS\n";
    for (const auto& command : commands) text += command_text(command);
    text += ".SH EXIT STATUS\n";
    text +=
        entries({{"0", "done"},
                 {"2", "bad usage or input; each problem is one message that names field, value, rule and way out"},
                 {"3", "no layout fits"},
                 {"4", "the run failed"},
                 {"5", "a prediction missed its tolerance"},
                 {"6", "check --gate cannot say: a flag that decides it is not computed, or a fact such as the vocabulary is missing"}});
    text += ".SH ENVIRONMENT\n";
    text += entries({{"MGPLAN_CUDA_MODULE", "file of the CUDA module, where it lies neither beside the program nor in ../lib of it"},
                     {"MGPLAN_JOB_FOLDER",
                      "folder in which the processes of one job find each other if each has a GPU; needed on several machines, which must "
                      "all see it, unless mgplan launch starts the job"}});
    text += ".SH EXAMPLES\n";
    for (const auto& [what, line] :
         {Entry{"The best layouts of Llama 3 8B on 16 GPUs:", "mgplan --world 16 --model llama3-8b"},
          Entry{"Save the second best, and look at each rank's memory:",
                "mgplan --world 16 --model llama3-8b --save-plan plan.json --pick 2\nmgplan simulate plan.json --per-rank"},
          Entry{"Train it for some steps on this machine, measured beside predicted:", "mgplan run plan.json --steps 3"},
          Entry{"Judge a Megatron-LM command:", "mgplan check --megatron-args train.sh --world 64"}}) {
        text += fmt::format(".TP\n{}\n.nf\n{}\n.fi\n", escaped(what), escaped(line));
    }
    return text;
}

}  // namespace mgplan::cli
