#pragma once
// Writes long lists of integers as JSON or plain text straight to a stream: tables of millions of numbers are neither
// turned into a document tree nor held as one string.

#include <charconv>
#include <concepts>
#include <ostream>
#include <span>
#include <string>
#include <string_view>

namespace mgplan::cli {

class ListWriter {
public:
    explicit ListWriter(std::ostream& out) : out_(out) { buffer_.reserve(kFlushAt + 4096); }
    ~ListWriter() { flush(); }
    ListWriter(const ListWriter&) = delete;
    ListWriter& operator=(const ListWriter&) = delete;

    void text(std::string_view text) {
        buffer_ += text;
        if (buffer_.size() >= kFlushAt) flush();
    }

    void number(std::integral auto value) {
        char digits[24];
        const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
        text({digits, static_cast<std::size_t>(end - digits)});
    }

    /// Writes the numbers with `separator` between them.
    template <class Number>
    void numbers(std::span<const Number> values, std::string_view separator) {
        for (std::size_t i = 0; i < values.size(); ++i) {
            if (i > 0) text(separator);
            number(values[i]);
        }
    }

    /// Writes [1,2,3].
    template <class Number>
    void list(std::span<const Number> values) {
        text("[");
        numbers(values, ",");
        text("]");
    }

private:
    static constexpr std::size_t kFlushAt = 1U << 18U;

    void flush() {
        out_.write(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
        buffer_.clear();
    }

    std::ostream& out_;
    std::string buffer_;
};

}  // namespace mgplan::cli
