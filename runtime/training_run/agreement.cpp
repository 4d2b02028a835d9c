#include "runtime/training_run/agreement.hpp"

#include <algorithm>
#include <cstddef>

#include <fmt/core.h>

#include "plan/text/text.hpp"

namespace mgplan::runtime {

std::string disagreement(std::span<const std::string> texts) {
    for (std::size_t rank = 1; rank < texts.size(); ++rank) {
        if (texts[rank] == texts[0]) continue;
        const auto theirs = split(texts[rank], '\n'), first = split(texts[0], '\n');
        std::size_t line = 0;
        while (line < std::min(theirs.size(), first.size()) && theirs[line] == first[line]) ++line;
        const auto shown = [line](const auto& lines) { return line < lines.size() ? lines[line] : std::string("nothing"); };
        return fmt::format("rank {} was started with {} and rank 0 with {}; start all ranks with the same options and files", rank,
                           shown(theirs), shown(first));
    }
    return "";
}

}  // namespace mgplan::runtime
