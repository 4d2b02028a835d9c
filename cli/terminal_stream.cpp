#include "cli/terminal_stream.hpp"

namespace mgplan::cli {

TerminalBuffer::~TerminalBuffer() {
    std::string rest;
    text_.finish(rest);
    if (!rest.empty()) write_raw(rest);
}

void TerminalBuffer::write_raw(std::string_view text) {
    to_.write(text.data(), static_cast<std::streamsize>(text.size()));
}

TerminalBuffer::int_type TerminalBuffer::overflow(int_type c) {
    if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
    const char byte = traits_type::to_char_type(c);
    return xsputn(&byte, 1) == 1 ? c : traits_type::eof();
}

std::streamsize TerminalBuffer::xsputn(const char* text, std::streamsize size) {
    std::string out;
    text_.append({text, static_cast<std::size_t>(size)}, out);
    write_raw(out);
    return to_.good() ? size : 0;
}

int TerminalBuffer::sync() {
    to_.flush();
    return to_.good() ? 0 : -1;
}

TerminalStream::TerminalStream(std::ostream& to) : std::ostream(nullptr), buffer_(to) {
    rdbuf(&buffer_);
    if ((to.flags() & std::ios_base::unitbuf) != 0) setf(std::ios_base::unitbuf);
}

void write_control(std::ostream& to, std::string_view sequence) {
    if (auto* const buffer = dynamic_cast<TerminalBuffer*>(to.rdbuf()))
        buffer->write_raw(sequence);
    else
        to << sequence;
}

}  // namespace mgplan::cli
