// fmt, compiled into an archive: Debian has it as a shared library only, or as headers that every file of
// ours would compile anew.
#include <fmt/format-inl.h>

// What the headers declare and leave to the library: fmt 9 (Debian 12) and fmt 10 (Debian 13) in one list.
template void fmt::detail::vformat_to<char>(buffer<char>&, string_view, format_args, locale_ref);
template void fmt::detail::buffer<char>::append<char>(const char*, const char*);
template fmt::detail::locale_ref::locale_ref(const std::locale&);
template auto fmt::detail::locale_ref::get<std::locale>() const -> std::locale;
template auto fmt::detail::decimal_point_impl<char>(locale_ref) -> char;
template auto fmt::detail::thousands_sep_impl<char>(locale_ref) -> thousands_sep_result<char>;
template auto fmt::detail::dragonbox::to_decimal<float>(float) noexcept -> decimal_fp<float>;
template auto fmt::detail::dragonbox::to_decimal<double>(double) noexcept -> decimal_fp<double>;
