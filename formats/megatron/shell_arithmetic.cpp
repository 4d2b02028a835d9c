#include "formats/megatron/shell_arithmetic.hpp"

#include <array>
#include <cctype>

namespace mgplan::formats {
namespace {

using Value = std::optional<std::int64_t>;

struct BinaryOperator {
    std::string_view text;
    int precedence;  ///< higher binds closer
};

// Longer ones first, so that "<" does not take half of "<<".
constexpr std::array kOperators{BinaryOperator{"**", 11}, BinaryOperator{"<<", 8}, BinaryOperator{">>", 8}, BinaryOperator{"<=", 7},
                                BinaryOperator{">=", 7},  BinaryOperator{"==", 6}, BinaryOperator{"!=", 6}, BinaryOperator{"&&", 2},
                                BinaryOperator{"||", 1},  BinaryOperator{"*", 10}, BinaryOperator{"/", 10}, BinaryOperator{"%", 10},
                                BinaryOperator{"+", 9},   BinaryOperator{"-", 9},  BinaryOperator{"<", 7},  BinaryOperator{">", 7},
                                BinaryOperator{"&", 5},   BinaryOperator{"^", 4},  BinaryOperator{"|", 3}};
constexpr int kPower = 11;

std::optional<std::int64_t> power(std::int64_t base, std::int64_t exponent) {
    if (exponent < 0) return std::nullopt;
    std::int64_t result = 1;
    for (; exponent > 0; --exponent) {
        if (__builtin_mul_overflow(result, base, &result)) return std::nullopt;
        if (result == 0 || result == 1) return exponent % 2 == 0 && base == -1 ? 1 : result;
        if (base == -1) return exponent % 2 == 0 ? 1 : -1;
    }
    return result;
}

std::optional<std::int64_t> combined(std::string_view op, std::int64_t left, std::int64_t right) {
    std::int64_t result = 0;
    switch (op[0]) {
        case '*':
            if (op == "**") return power(left, right);
            return __builtin_mul_overflow(left, right, &result) ? Value() : result;
        case '/':
        case '%':
            if (right == 0 || (right == -1 && left == INT64_MIN)) return std::nullopt;
            return op[0] == '/' ? left / right : left % right;
        case '+':
            return __builtin_add_overflow(left, right, &result) ? Value() : result;
        case '-':
            return __builtin_sub_overflow(left, right, &result) ? Value() : result;
        case '<':
            if (op == "<<") return right < 0 || right > 62 || left < 0 || left > (INT64_MAX >> right) ? Value() : left << right;
            return op == "<=" ? left <= right : left < right;
        case '>':
            if (op == ">>") return right < 0 || right > 63 ? Value() : left >> right;
            return op == ">=" ? left >= right : left > right;
        case '=':
            return left == right;
        case '!':
            return left != right;
        case '&':
            return op == "&&" ? (left != 0 && right != 0) : left & right;
        case '|':
            return op == "||" ? (left != 0 || right != 0) : left | right;
        default:
            return left ^ right;
    }
}

class Expression {
public:
    Expression(std::string_view text, const VariableLookup& lookup, int depth) : text_(text), lookup_(lookup), depth_(depth) {}

    Value whole() {
        const Value value = conditional();
        skip();
        return at_ == text_.size() ? value : std::nullopt;
    }

private:
    static constexpr int kDeepest = 64;  // of parentheses, and of variables that hold expressions

    void skip() {
        while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
    }

    bool take(std::string_view token) {
        skip();
        if (!text_.substr(at_).starts_with(token)) return false;
        at_ += token.size();
        return true;
    }

    Value conditional() {
        if (++depth_ > kDeepest) return std::nullopt;
        Value condition = binary(0);
        if (condition && take("?")) {
            const Value yes = conditional();
            if (!yes || !take(":")) return std::nullopt;
            const Value no = conditional();
            if (!no) return std::nullopt;
            condition = *condition != 0 ? yes : no;
        }
        --depth_;
        return condition;
    }

    Value binary(int lowest) {
        Value left = unary();
        while (left) {
            skip();
            const BinaryOperator* found = nullptr;
            for (const auto& op : kOperators) {
                if (text_.substr(at_).starts_with(op.text)) {
                    found = &op;
                    break;
                }
            }
            if (found == nullptr || found->precedence <= lowest) return left;
            const char behind = at_ + found->text.size() < text_.size() ? text_[at_ + found->text.size()] : ' ';
            if (behind == '=' && found->precedence != 6 && found->precedence != 7) return std::nullopt;  // an assignment
            at_ += found->text.size();
            const Value right = binary(found->precedence == kPower ? kPower - 1 : found->precedence);  // ** groups from the right
            left = right ? combined(found->text, *left, *right) : std::nullopt;
        }
        return left;
    }

    Value unary() {
        if (++depth_ > kDeepest) return std::nullopt;
        Value value;
        if (take("-")) {
            value = unary();
            if (value) value = combined("-", 0, *value);
        } else if (take("+")) {
            value = unary();
        } else if (take("!")) {
            value = unary();
            if (value) value = *value == 0 ? 1 : 0;
        } else if (take("~")) {
            value = unary();
            if (value) value = ~*value;
        } else if (take("(")) {
            value = conditional();
            if (!take(")")) value.reset();
        } else {
            value = operand();
        }
        --depth_;
        return value;
    }

    Value operand() {
        skip();
        const bool dollar = take("$"), braces = dollar && take("{");
        const std::size_t start = at_;
        while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_')) ++at_;
        const std::string word(text_.substr(start, at_ - start));
        if (word.empty() || (braces && !take("}"))) return std::nullopt;
        if (!dollar && std::isdigit(static_cast<unsigned char>(word[0])) != 0) return number(word);
        const auto text = lookup_(word);
        if (!text) return std::nullopt;
        return text->empty() ? Value(0) : Expression(*text, lookup_, depth_ + 1).whole();  // a variable may hold an expression
    }

    static Value number(const std::string& word) {
        const bool hexadecimal = word.starts_with("0x") || word.starts_with("0X");
        const int base = hexadecimal ? 16 : word.size() > 1 && word[0] == '0' ? 8 : 10;
        std::int64_t value = 0;
        for (std::size_t i = hexadecimal ? 2 : 0; i < word.size(); ++i) {
            const int letter = std::tolower(static_cast<unsigned char>(word[i]));
            const int digit = letter >= '0' && letter <= '9' ? letter - '0' : letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : 99;
            if (digit >= base || __builtin_mul_overflow(value, base, &value) || __builtin_add_overflow(value, digit, &value))
                return std::nullopt;
        }
        return word.size() > (hexadecimal ? 2U : 0U) ? Value(value) : std::nullopt;
    }

    std::string_view text_;
    const VariableLookup& lookup_;
    std::size_t at_ = 0;
    int depth_;
};

}  // namespace

std::optional<std::int64_t> shell_arithmetic(std::string_view expression, const VariableLookup& lookup) {
    return Expression(expression, lookup, 0).whole();
}

}  // namespace mgplan::formats
