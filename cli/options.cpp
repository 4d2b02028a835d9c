#include "cli/options.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <ostream>
#include <sstream>

#include <fmt/format.h>
#include <boost/program_options.hpp>

#include "cli/output_file.hpp"
#include "plan/text/count_text.hpp"
#include "plan/text/text.hpp"
#include "reports/table.hpp"

namespace mgplan::cli {
namespace {

namespace po = boost::program_options;

constexpr unsigned kHelpWidth = 80;
/// A smaller size without a unit is most likely meant in another one than bytes.
constexpr std::int64_t kLeastBareBytes = std::int64_t{1} << 20;

/// Breaks lines at blanks so that none is longer than the help. All lines but the text's first are indented by `indent` blanks.
std::string wrapped(const std::string& text, std::size_t indent) {
    const std::string blanks(indent, ' ');
    std::string out;
    for (const auto& paragraph : split(text, '\n')) {
        const std::size_t lead = std::min(paragraph.find_first_not_of(' '), paragraph.size());
        std::string line = (out.empty() || lead == paragraph.size() ? "" : blanks) + paragraph.substr(0, lead);
        bool starts = true;
        for (const auto& word : split(std::string_view(paragraph).substr(lead), ' ')) {
            if (!starts && reports::display_width(line) + 1 + reports::display_width(word) > kHelpWidth) {
                out += line + "\n";
                line = blanks + word;
            } else {
                line += (starts ? "" : " ") + word;
            }
            starts = false;
        }
        out += line + "\n";
    }
    return out;
}

/// The name that other programs give an option, the name it has here, and the words that follow it in a message.
struct OtherName {
    std::string_view name, own, rest = {};
};

constexpr OtherName kOtherNames[] = {
    {"gpus", "world"},
    {"num-gpus", "world"},
    {"ngpus", "world"},
    {"world-size", "world"},
    {"nodes", "world", " with all GPUs of the nodes"},
    {"nnodes", "world", " with all GPUs of the nodes"},
    {"num-nodes", "world", " with all GPUs of the nodes"},
    {"gpu", "cluster"},
    {"hardware", "cluster"},
    {"gbs", "global-batch"},
    {"batch-size", "global-batch"},
    {"global-batch-size", "global-batch"},
    {"mbs", "micro-batch"},
    {"micro-batch-size", "micro-batch"},
    {"seq-length", "seq"},
    {"seq-len", "seq"},
    {"sequence-length", "seq"},
    {"max-seq-len", "seq"},
    {"tensor-parallel-size", "tp"},
    {"tensor-model-parallel-size", "tp"},
    {"pipeline-parallel-size", "pp"},
    {"pipeline-model-parallel-size", "pp"},
    {"context-parallel-size", "cp"},
    {"expert-parallel-size", "ep"},
    {"expert-model-parallel-size", "ep"},
    {"dtype", "precision"},
    {"fsdp", "sharding", " full"},
    {"zero", "sharding", " optimizer (stage 1), optimizer_gradients (2) or full (3)"},
    {"gpus", "on", " GPUS:CLUSTER"},
    {"gpu-hour-price", "price"},
    {"price", "gpu-hour-price"},
    {"json", "format", " json"},
    {"csv", "format", " csv"},
};

/// Returns the words that follow the message about an option which the command lacks.
std::string way_out_of(const std::string& unknown, const std::vector<std::string>& names) {
    for (const OtherName& other : kOtherNames) {
        if (other.name == unknown && std::find(names.begin(), names.end(), other.own) != names.end())
            return fmt::format("use --{}{}", other.own, other.rest);
    }
    std::vector<std::string> nearest = nearest_names(unknown, names);
    for (auto& each : nearest) each.insert(0, "--");
    return nearest.empty() ? "--help lists the options" : fmt::format("did you mean {}?", any_of_text(nearest));
}

/// Returns k for the name of the k-th positional's text, "PLAN 2" or for the first one also "PLAN"; 0 for other names.
std::size_t place_of(const std::string& name, const std::string& positional) {
    if (positional.empty() || !name.starts_with(positional)) return 0;
    if (name == positional) return 1;
    const auto place = parse_integer(name.substr(positional.size() + 1));
    return name[positional.size()] == ' ' && place && *place > 0 ? static_cast<std::size_t>(*place) : 0;
}

}  // namespace

struct Options::State {
    std::string usage;
    std::string purpose;
    std::vector<std::unique_ptr<po::options_description>> groups;
    CommandDescription description;
    std::vector<std::string> names;
    std::map<std::string, bool> is_flag;
    /// Stores the given text into the option's target, adding problems.
    std::map<std::string, std::function<void(const std::string&, Problems&)>> store;
    std::vector<std::string>* positional_target = nullptr;
    int positional_most = 0;
    std::string positional_name;
    std::string positional_help;  ///< wrapped
    po::variables_map values;
    std::string format = "table";
    std::optional<std::string> output;
    bool help_wanted = false;
    std::vector<std::string> output_names;  ///< of the options that name files to write
    std::vector<NamedFile> outputs;         ///< those that were given
    bool outputs_are_tried_later = false;
    std::map<std::string, GivenText> texts;
    std::map<std::string, std::vector<std::string>> repeated;  ///< of options that may be given several times: all but the last value

    OptionDescription& last_option() { return description.groups.back().options.back(); }

    void declare(const char* name, const std::string& value_name, const std::string& default_text, const char* help,
                 std::function<void(const std::string&, Problems&)> store_value) {
        description.groups.back().options.push_back({name, value_name, help, default_text, {}, false});
        names.emplace_back(name);
        is_flag[name] = false;
        store[name] = std::move(store_value);
        const std::string text = default_text.empty() ? std::string(help) : fmt::format("{} (default: {})", help, default_text);
        groups.back()->add_options()(name, po::value<std::string>()->value_name(value_name), text.c_str());
    }
};

Options::Options(std::string usage, std::string purpose) : state_(std::make_unique<State>()) {
    state_->description.usage = split(usage, '\n');
    state_->description.purpose = purpose;
    state_->usage = std::move(usage);
    state_->purpose = std::move(purpose);
    group("Options");
}

Options::~Options() = default;

void Options::group(const std::string& title) {
    state_->description.groups.push_back({title, {}});
    state_->groups.push_back(std::make_unique<po::options_description>(title, kHelpWidth, kHelpWidth / 2));
}

void Options::flag(const char* name, bool& target, const char* help) {
    state_->names.emplace_back(name);
    state_->is_flag[name] = true;
    state_->description.groups.back().options.push_back({name, "", help, "", {}, false});
    state_->store[name] = [&target](const std::string&, Problems&) { target = true; };
    state_->groups.back()->add_options()(name, po::bool_switch(), help);
}

void Options::text(const char* name, std::string& target, const char* value_name, const char* help) {
    state_->declare(name, value_name, target, help, [&target](const std::string& given, Problems&) { target = given; });
}

void Options::text(const char* name, std::optional<std::string>& target, const char* value_name, const char* help) {
    state_->declare(name, value_name, target.value_or(""), help, [&target](const std::string& given, Problems&) { target = given; });
}

void Options::texts(const char* name, std::vector<std::string>& target, const char* value_name, const char* help) {
    state_->declare(name, value_name, "", help, [&target](const std::string& given, Problems&) { target.push_back(given); });
    state_->repeated[name] = {};
}

void Options::output_file(const char* name, std::optional<std::string>& target, const char* help) {
    state_->output_names.emplace_back(name);
    text(name, target, "FILE", help);
}

void Options::integer(const char* name, std::int64_t& target, std::int64_t low, std::int64_t high, const char* help) {
    state_->declare(name, "N", std::to_string(target), help, [&target, name, low, high](const std::string& given, Problems& problems) {
        target = read_integer(problems, fmt::format("--{}", name), given, low, high);
    });
}

void Options::integer(const char* name, std::optional<std::int64_t>& target, std::int64_t low, std::int64_t high, const char* help) {
    state_->declare(name, "N", target ? std::to_string(*target) : "", help,
                    [&target, name, low, high](const std::string& given, Problems& problems) {
                        target = read_integer(problems, fmt::format("--{}", name), given, low, high);
                    });
}

void Options::count(const char* name, std::optional<std::int64_t>& target, std::int64_t low, std::int64_t high, const char* help) {
    state_->declare(name, "N", target ? std::to_string(*target) : "", help,
                    [&target, name, low, high](const std::string& given, Problems& problems) {
                        target = read_count(problems, fmt::format("--{}", name), given, low, high);
                    });
}

void Options::integers(const char* name, std::vector<std::int64_t>& target, std::int64_t low, std::int64_t high, const char* help) {
    state_->declare(name, "LIST", "", help, [&target, name, low, high](const std::string& given, Problems& problems) {
        target = read_integer_list(problems, fmt::format("--{}", name), given, low, high);
    });
}

void Options::real(const char* name, double& target, double low, double high, const char* help) {
    state_->declare(name, "X", fmt::format("{}", target), help, [&target, name, low, high](const std::string& given, Problems& problems) {
        const auto value = parse_real(given);
        if (!value || *value < low || *value > high) {
            problems.add("--{} = '{}' is no number from {} to {}; write one, such as {}", name, given.substr(0, 60), low, high, target);
        } else {
            target = *value;
        }
    });
}

void Options::bytes(const char* name, std::optional<std::int64_t>& target, const char* help) {
    state_->declare(name, "SIZE", "", help, [&target, name](const std::string& given, Problems& problems) {
        target = parse_size(given);
        if (!target || *target == 0) {
            problems.add("--{} = '{}' is no size; write bytes, 128M or 80GiB", name, given.substr(0, 60));
        } else if (*target < kLeastBareBytes && parse_integer(given)) {
            problems.add("--{} = {} has no unit, so it would be {} {}; write --{} {}GiB, or {}B if bytes are meant", name, given, given,
                         *target == 1 ? "byte" : "bytes", name, given, given);
        }
    });
}

void Options::choice(const char* name, std::string& target, std::vector<std::string> allowed, const char* help) {
    const std::string shown = fmt::format("{}", fmt::join(allowed, "|"));
    state_->declare(name, shown, target, help, [&target, name, allowed](const std::string& given, Problems& problems) {
        target = given;
        if (std::find(allowed.begin(), allowed.end(), given) == allowed.end()) {
            problems.add("--{} = '{}' is not known; use {}", name, given, any_of_text(allowed));
        }
    });
    state_->last_option().words = std::move(allowed);
}

void Options::choice(const char* name, std::optional<std::string>& target, std::vector<std::string> allowed, const char* help) {
    const std::string shown = fmt::format("{}", fmt::join(allowed, "|"));
    checked(
        name, target, shown.c_str(),
        [name, allowed](const std::string& given, Problems& problems) {
            if (std::find(allowed.begin(), allowed.end(), given) == allowed.end()) {
                problems.add("--{} = '{}' is not known; use {}", name, given, any_of_text(allowed));
            }
        },
        help);
    state_->last_option().words = std::move(allowed);
}

void Options::checked(const char* name, std::optional<std::string>& target, const char* value_name,
                      std::function<void(const std::string&, Problems&)> check, const char* help) {
    state_->declare(name, value_name, target.value_or(""), help,
                    [&target, check = std::move(check)](const std::string& given, Problems& problems) {
                        target = given;
                        check(given, problems);
                    });
}

void Options::choices(const char* name, std::vector<std::string>& target, std::vector<std::string> allowed, const char* help) {
    // A long list of words goes to the help text instead of the name of the value.
    std::string shown = fmt::format("{}[,...]", fmt::join(allowed, "|"));
    std::string text = help;
    if (shown.size() > kHelpWidth / 2 + 10) {
        shown = "NAME[,...]";
        text += fmt::format(" ({})", fmt::join(allowed, ", "));
    }
    const std::string preset = fmt::format("{}", fmt::join(target, ","));
    state_->declare(name, shown, preset, text.c_str(), [&target, name, allowed](const std::string& given, Problems& problems) {
        target = split(given, ',');
        if (target.empty()) problems.add("--{} is empty; use {}", name, any_of_text(allowed));
        for (const auto& word : target) {
            if (std::find(allowed.begin(), allowed.end(), word) == allowed.end()) {
                problems.add("--{} = '{}' is not known; use {}", name, word, any_of_text(allowed));
            }
        }
    });
    state_->last_option().words = std::move(allowed);
    state_->last_option().takes_list = true;
}

void Options::positional(const char* name, std::vector<std::string>& target, int most, const char* help) {
    state_->positional_target = &target;
    state_->positional_most = most;
    state_->positional_name = name;
    state_->positional_help += "\n" + wrapped(fmt::format("  {}  {}", name, help), std::strlen(name) + 4);
    state_->description.positionals.push_back({name, help});
}

void Options::use_texts(const Console& console) {
    for (const auto& [name, text] : console.texts) {
        if (place_of(name, state_->positional_name) == 0 && (!state_->store.contains(name) || state_->is_flag.at(name)))
            throw ConfigError(fmt::format("{} takes no text; name a file or leave it out", name));
    }
    state_->texts = console.texts;
}

const GivenText* Options::contents(const std::string& name) const {
    const auto found = state_->texts.find(name);
    return found == state_->texts.end() ? nullptr : &found->second;
}

/// The values of the options that are given, by name; what is no option goes to `words`.
std::map<std::string, std::string> Options::taken_apart(const std::vector<std::string>& args, std::vector<std::string>& words,
                                                        Problems& problems) const {
    State& state = *state_;
    std::map<std::string, std::string> found;
    // Words are taken apart here rather than by Boost's parser, which stops at the first unknown option: people get all
    // problems at once. Boost keeps the declarations, so that help and parser cannot differ.
    for (std::size_t i = 0; i < args.size(); ++i) {
        const std::string& word = args[i];
        if (!word.starts_with("--") || word == "--") {
            if (word == "-h") {
                found["help"] = "";
            } else if (word.size() > 1 && word[0] == '-' && !parse_real(word)) {
                problems.add("'{}' is not an option; options have two dashes: --help lists them", word);
            } else {
                words.push_back(word);
            }
            continue;
        }
        const auto equals = word.find('=');
        const std::string name = word.substr(2, equals == std::string::npos ? equals : equals - 2);
        if (!state.is_flag.contains(name)) {
            problems.add("unknown option --{}; {}", name.substr(0, 60), way_out_of(name, state.names));
            // Skips its value, if it has one, so that it causes no further problem.
            if (equals == std::string::npos && i + 1 < args.size() && !args[i + 1].starts_with("-")) ++i;
            continue;
        }
        if (const auto several = state.repeated.find(name); found.contains(name) && several != state.repeated.end())
            several->second.push_back(found[name]);
        else if (found.contains(name))
            problems.add("--{} is given twice; give it once", name);
        if (state.is_flag.at(name)) {
            if (equals != std::string::npos) problems.add("--{} takes no value; write --{} alone", name, name);
            found[name] = "";
        } else if (equals != std::string::npos) {
            found[name] = word.substr(equals + 1);
        } else if (i + 1 < args.size() && !args[i + 1].starts_with("--")) {
            found[name] = args[++i];
        } else {
            problems.add("--{} needs a value; --help shows which", name);
        }
    }
    return found;
}

bool Options::parse(const std::vector<std::string>& args, std::ostream& out) {
    State& state = *state_;
    group("Output");
    choice("format", state.format, {"table", "json", "csv"}, "how to print the result");
    output_file("output", state.output, "write the result to FILE instead of standard output");
    flag("help", state.help_wanted, "print this help");

    Problems problems;
    std::vector<std::string> words;
    std::map<std::string, std::string> found = taken_apart(args, words, problems);
    if (found.contains("help")) {
        out << (found.contains("format") && found["format"] == "json" ? to_json(description()) : help());
        return false;
    }
    std::vector<NamedFile> others;  // files that are read
    for (const auto& word : words) others.push_back({state.positional_name, word});
    for (const auto& [name, text] : state.texts) {
        if (const std::size_t place = place_of(name, state.positional_name); place > 0)
            words.insert(words.begin() + static_cast<std::ptrdiff_t>(std::min(place - 1, words.size())), text.name);
        else if (!found.emplace(name, text.name).second)
            problems.add("--{} is given twice; give it once", name);
    }
    const std::size_t most = state.positional_target == nullptr ? 0 : static_cast<std::size_t>(state.positional_most);
    if (words.size() > most) {
        problems.add("unexpected word '{}'; options begin with --, and --help lists them", words[most].substr(0, 60));
    } else if (state.positional_target != nullptr) {
        *state.positional_target = words;
    }
    for (const auto& [name, value] : found) {
        state.values.insert({name, po::variable_value(boost::any(value), false)});
        if (const auto several = state.repeated.find(name); several != state.repeated.end()) {
            for (const auto& one : several->second) state.store.at(name)(one, problems);
        }
        state.store.at(name)(value, problems);
    }
    for (const auto& [name, value] : found) {
        if (state.texts.contains(name)) continue;
        const bool is_output = std::find(state.output_names.begin(), state.output_names.end(), name) != state.output_names.end();
        (is_output ? state.outputs : others).push_back({"--" + name, value});
    }
    add_same_file_problems(problems, state.outputs, others);
    if (!state.outputs_are_tried_later) add_unwritable_problems(problems, state.outputs);
    problems.throw_if_any();
    return true;
}

void Options::try_outputs_later() {
    state_->outputs_are_tried_later = true;
}

void Options::try_outputs() const {
    Problems problems;
    add_unwritable_problems(problems, state_->outputs);
    problems.throw_if_any();
}

Format Options::format() const {
    return state_->format == "json" ? Format::json : state_->format == "csv" ? Format::csv : Format::table;
}

const std::optional<std::string>& Options::output_path() const {
    return state_->output;
}

bool Options::given(const char* name) const {
    return state_->values.count(name) > 0;
}

std::vector<std::string> Options::given() const {
    std::vector<std::string> names;
    for (const auto& [name, value] : state_->values) names.push_back(name);
    return names;
}

void Options::note_idle(Console& console, const char* name, bool idle, std::string_view why) const {
    if (idle && given(name)) console.err << fmt::format("mgplan: --{} has no effect: {}\n", name, why);
}

std::string Options::help() const {
    std::ostringstream text;
    text << wrapped("usage: mgplan " + state_->usage, 7) << "\n" << wrapped(state_->purpose, 0) << state_->positional_help;
    for (const auto& group : state_->groups) {
        if (!group->options().empty()) text << "\n" << *group;
    }
    // Boost leaves the blank at which it broke a line.
    std::string help;
    for (const auto& line : split(text.str(), '\n')) {
        help.append(line, 0, line.find_last_not_of(' ') + 1);
        help += '\n';
    }
    help.pop_back();
    return help;
}

CommandDescription Options::description() const {
    CommandDescription description = state_->description;
    std::erase_if(description.groups, [](const OptionGroup& group) { return group.options.empty(); });
    return description;
}

void Options::write(Console& console, const std::string& result) const {
    write(console, [&result](std::ostream& out) { out << result; });
}

void Options::write(Console& console, const std::function<void(std::ostream&)>& write_to) const {
    if (!state_->output) {
        write_to(console.out);
        console.out.flush();
        if (!console.out) throw RunError("standard output cannot be written; is the disk full or the reader gone?");
        return;
    }
    if (write_output_file(*state_->output, write_to)) return;
    // The file could be written when the command began; the console keeps the result.
    write_to(console.out);
    console.out.flush();
    throw RunError(fmt::format("--output {}: the file cannot be written any more, is the disk full? The result went to standard output",
                               *state_->output));
}

}  // namespace mgplan::cli
