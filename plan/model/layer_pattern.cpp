#include "plan/model/layer_pattern.hpp"

#include <fmt/core.h>

#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"

namespace mgplan {
namespace {

constexpr int kDeepestPattern = 32;
constexpr std::size_t kTextLimit = 1U << 20U;

/// sum := product {'+' product};  product := item {'*' number};  item := '[' digits ']' | '(' sum ')'
class PatternParser {
public:
    PatternParser(std::string_view text, std::size_t limit) : text_(text), limit_(limit) {}

    std::vector<bool> parse() {
        std::vector<bool> layers = sum(0);
        if (at_ < text_.size()) fail("expected + or * here");
        return layers;
    }

private:
    [[noreturn]] void fail(std::string_view reason) const {
        const std::size_t from = at_ > 60 ? at_ - 60 : 0;
        throw ConfigError(fmt::format("layer pattern does not parse: {}; write it like ([0]*3+[1]*58)\n{}", reason,
                                      caret_under(text_.substr(from, 100), at_ - from)));
    }

    void skip_blanks() {
        while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
    }

    bool take(char c) {
        skip_blanks();
        if (at_ >= text_.size() || text_[at_] != c) return false;
        ++at_;
        return true;
    }

    std::size_t number() {
        skip_blanks();
        const std::size_t start = at_;
        std::size_t value = 0;
        while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
            value = value * 10 + static_cast<std::size_t>(text_[at_] - '0');
            if (value > limit_) fail(fmt::format("more than {} layers", limit_));
            ++at_;
        }
        if (at_ == start) fail("expected a number here");
        return value;
    }

    std::vector<bool> sum(int depth) {
        if (depth > kDeepestPattern) fail("nested too deeply");
        std::vector<bool> layers = product(depth);
        while (take('+')) {
            const std::vector<bool> more = product(depth);
            if (layers.size() + more.size() > limit_) fail(fmt::format("more than {} layers", limit_));
            layers.insert(layers.end(), more.begin(), more.end());
        }
        return layers;
    }

    std::vector<bool> product(int depth) {
        std::vector<bool> layers = item(depth);
        while (take('*')) {
            const std::size_t times = number();
            if (!layers.empty() && times > limit_ / layers.size()) fail(fmt::format("more than {} layers", limit_));
            const std::vector<bool> once = layers;
            layers.clear();
            layers.reserve(once.size() * times);
            for (std::size_t i = 0; !once.empty() && i < times; ++i) layers.insert(layers.end(), once.begin(), once.end());
        }
        return layers;
    }

    std::vector<bool> item(int depth) {
        if (take('(')) {
            std::vector<bool> layers = sum(depth + 1);
            if (!take(')')) fail("expected ) here");
            return layers;
        }
        if (!take('[')) fail("expected [ or ( here");
        std::vector<bool> layers;
        if (take(']')) return layers;
        do {
            const std::size_t value = number();
            if (value > 1) fail("layers are 0 (dense) or 1 (mixture)");
            if (layers.size() >= limit_) fail(fmt::format("more than {} layers", limit_));
            layers.push_back(value == 1);
        } while (take(','));
        if (!take(']')) fail("expected ] here");
        return layers;
    }

    std::string_view text_;
    std::size_t limit_;
    std::size_t at_ = 0;
};

}  // namespace

std::vector<bool> parse_layer_pattern(std::string_view text, std::int64_t limit) {
    if (text.size() > kTextLimit) throw ConfigError(fmt::format("layer pattern of {} characters; this is no pattern", text.size()));
    return PatternParser(text, static_cast<std::size_t>(limit)).parse();
}

std::string layer_pattern_text(const std::vector<bool>& layers) {
    if (layers.empty()) return "[]";
    std::string text;
    for (std::size_t start = 0; start < layers.size();) {
        std::size_t end = start;
        while (end < layers.size() && layers[end] == layers[start]) ++end;
        if (!text.empty()) text += '+';
        text += layers[start] ? "[1]" : "[0]";
        if (end - start > 1) text += fmt::format("*{}", end - start);
        start = end;
    }
    return text;
}

}  // namespace mgplan
