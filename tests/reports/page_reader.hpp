#pragma once
// Reads a page back as text.

#include <set>
#include <string>
#include <vector>

namespace mgplan::reports::testing {

inline std::string between(const std::string& text, const std::string& begin, const std::string& end) {
    const auto from = text.find(begin);
    if (from == std::string::npos) return {};
    const auto start = from + begin.size();
    return text.substr(start, text.find(end, start) - start);
}

/// The first element that is not closed, or closed where another is open; empty: every one is in order. What scripts and styles
/// hold is no markup.
inline std::string first_broken_element(std::string html) {
    for (std::string name : {"script", "style"}) {
        std::string without;
        std::size_t at = 0;
        for (;;) {
            const auto begin = html.find("<" + name, at);
            if (begin == std::string::npos) break;
            const auto end = html.find("</" + name + ">", begin);
            if (end == std::string::npos) return name;
            without += html.substr(at, begin - at);
            at = end + name.size() + 3;
        }
        html = without + html.substr(at);
    }
    const std::set<std::string> empty{"meta", "input", "br", "!DOCTYPE"};
    std::vector<std::string> open;
    std::size_t at = 0;
    while ((at = html.find('<', at)) != std::string::npos) {
        const auto end = html.find('>', at);
        if (end == std::string::npos) return html.substr(at, 20);
        const std::string tag = html.substr(at + 1, end - at - 1);
        std::string name = tag.substr(0, tag.find_first_of(" />", tag[0] == '/' ? 1 : 0));
        at = end + 1;
        if (tag.back() == '/' || empty.count(name) > 0) continue;
        if (name[0] != '/') {
            open.push_back(name);
        } else {
            if (open.empty() || "/" + open.back() != name) return name;
            open.pop_back();
        }
    }
    return open.empty() ? "" : open.back();
}

}  // namespace mgplan::reports::testing
