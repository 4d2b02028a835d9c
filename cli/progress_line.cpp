#include "cli/progress_line.hpp"

#include <ostream>

#include "cli/terminal_stream.hpp"

namespace mgplan::cli {
namespace {

constexpr std::string_view kBackAndErase = "\r\x1b[K";

}  // namespace

void ProgressLine::show(std::string_view text) {
    if (!console_.err_is_terminal) return;
    write_control(console_.err, kBackAndErase);
    console_.err << text << std::flush;
    shown_ = true;
}

void ProgressLine::clear() {
    if (!shown_) return;
    write_control(console_.err, kBackAndErase);
    console_.err << std::flush;
    shown_ = false;
}

}  // namespace mgplan::cli
