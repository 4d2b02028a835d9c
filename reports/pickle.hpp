#pragma once
// Writes Python pickles of dictionaries, lists, pairs, texts, whole numbers and truth values (protocol 4: PEP 3154, Lib/pickletools.py).

#include <cstdint>
#include <iosfwd>
#include <map>
#include <string>
#include <string_view>

namespace mgplan::reports {

/// Writes one pickle. A container is opened, filled with values and closed; in a dictionary keys and values take turns. Opcodes are those
/// of pickle.dump() for the same values, since other readers than Python's support few others.
class PickleWriter {
public:
    explicit PickleWriter(std::ostream& out);

    void open_dict();
    void close_dict();
    void open_list();
    /// Appends the value written last to the list.
    void append();
    void number(std::int64_t value);
    void truth(bool value);
    /// A text of up to 2³¹ bytes, UTF-8; repeated texts are written once.
    void text(std::string_view value);
    /// Replaces the two values written last by a tuple of them.
    void pair();
    /// Remembers the value written last, or a list just opened, and returns its number for recall().
    std::uint32_t remember();
    /// Writes a value again: the same object to Python.
    void recall(std::uint32_t number);
    /// Ends the pickle, of one value.
    void finish();

private:
    void put(char code);
    void put(std::uint64_t value, int bytes);

    std::ostream& out_;
    std::uint32_t remembered_ = 0;
    std::map<std::string, std::uint32_t, std::less<>> texts_;
};

}  // namespace mgplan::reports
