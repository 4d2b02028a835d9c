#pragma once
// Options declared once: the declaration gives parser, help text and default.

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command.hpp"
#include "cli/command_description.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::cli {

enum class Format { table, json, csv };

/// A command's options over Boost.Program_options. Targets hold the defaults before parse() and the values after it.
class Options {
public:
    /// `usage` is the line(s) after "usage: mgplan "; `purpose` one paragraph above the options.
    Options(std::string usage, std::string purpose);
    ~Options();
    Options(const Options&) = delete;
    Options& operator=(const Options&) = delete;

    /// Starts a titled group in the help text.
    void group(const std::string& title);

    void flag(const char* name, bool& target, const char* help);
    void text(const char* name, std::string& target, const char* value_name, const char* help);
    void text(const char* name, std::optional<std::string>& target, const char* value_name, const char* help);
    /// Declares an option that may be given several times, each time with one text.
    void texts(const char* name, std::vector<std::string>& target, const char* value_name, const char* help);
    /// A file that the command writes with write_output_file(). parse() checks that it can be written before anything is computed.
    void output_file(const char* name, std::optional<std::string>& target, const char* help);
    void integer(const char* name, std::int64_t& target, std::int64_t low, std::int64_t high, const char* help);
    void integer(const char* name, std::optional<std::int64_t>& target, std::int64_t low, std::int64_t high, const char* help);
    /// A whole number in [low, high] that may be written with k, M or G for powers of 1024 (parse_count, plan/text/count_text.hpp).
    void count(const char* name, std::optional<std::int64_t>& target, std::int64_t low, std::int64_t high, const char* help);
    void integers(const char* name, std::vector<std::int64_t>& target, std::int64_t low, std::int64_t high, const char* help);
    /// A finite real number in [low, high].
    void real(const char* name, double& target, double low, double high, const char* help);
    /// A byte count: 128M, 2GiB. A number below 1 MiB needs a unit.
    void bytes(const char* name, std::optional<std::int64_t>& target, const char* help);
    /// A word out of `allowed`.
    void choice(const char* name, std::string& target, std::vector<std::string> allowed, const char* help);
    void choice(const char* name, std::optional<std::string>& target, std::vector<std::string> allowed, const char* help);
    /// A text that `check` accepts or adds problems for.
    void checked(const char* name, std::optional<std::string>& target, const char* value_name,
                 std::function<void(const std::string& given, Problems& problems)> check, const char* help);
    /// A comma-separated list of words out of `allowed`.
    void choices(const char* name, std::vector<std::string>& target, std::vector<std::string> allowed, const char* help);
    /// Words without a flag; at most `most` of them.
    void positional(const char* name, std::vector<std::string>& target, int most, const char* help);

    /// Options and positionals whose contents are in `console.texts` count as given, by the name of the text; contents() returns them.
    /// Called before parse(). Throws ConfigError for a text that no option takes.
    void use_texts(const Console& console);
    /// Returns the contents of the file that this option or positional names, if the caller gave them; nullptr: the file is to be read.
    [[nodiscard]] const GivenText* contents(const std::string& name) const;

    /// Adds --format, --output and --help, reads `args` and stores values. Returns false if --help was given and
    /// printed to `out`, with --format json as the declarations themselves. Throws ConfigError with every problem: unknown options (nearest
    /// names), missing or bad values, output files that cannot be written (what they hold stays until they are) or that another word of the
    /// command line names, too.
    bool parse(const std::vector<std::string>& args, std::ostream& out);

    /// Leaves the check of output files to try_outputs(), for commands of which not every process writes.
    void try_outputs_later();
    void try_outputs() const;

    [[nodiscard]] Format format() const;
    /// --output, where it was given.
    [[nodiscard]] const std::optional<std::string>& output_path() const;
    /// Returns true if the option was on the command line.
    [[nodiscard]] bool given(const char* name) const;
    /// Returns the names of all options on the command line, in alphabetical order.
    [[nodiscard]] std::vector<std::string> given() const;
    /// Prints one line to `console.err` if the option was on the command line and is `idle`: accepted without effect.
    /// Contradictions between options are errors instead.
    void note_idle(Console& console, const char* name, bool idle, std::string_view why) const;
    [[nodiscard]] std::string help() const;
    /// The declarations, without the command's name and summary.
    [[nodiscard]] CommandDescription description() const;

    /// Writes a command's result to --output FILE, or to the console. Throws RunError when it cannot be written; the result
    /// of a file goes to the console then.
    void write(Console& console, const std::string& result) const;
    /// The same for results too long to hold as one string: `write_to` gets the stream, and in that case another one.
    void write(Console& console, const std::function<void(std::ostream&)>& write_to) const;

private:
    struct State;
    [[nodiscard]] std::map<std::string, std::string> taken_apart(const std::vector<std::string>& args, std::vector<std::string>& words,
                                                                 Problems& problems) const;
    std::unique_ptr<State> state_;
};

}  // namespace mgplan::cli
